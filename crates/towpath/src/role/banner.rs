//! What `towpath up` shows when it is up.

use crate::screen::Screen;
use crate::screen::style::Style;
use std::path::Path;

/// Where things are.
pub(super) struct Banner<'a> {
    /// An app's URL with a placeholder.
    pub(super) apps: String,
    /// URL of the API.
    pub(super) api: &'a str,
    /// Where the gateway tells its metrics, if anywhere.
    pub(super) metrics: Option<String>,
    /// File with the operator's token.
    pub(super) token: &'a Path,
    /// Own files.
    pub(super) data: &'a Path,
    /// Files of instances, when they are elsewhere.
    pub(super) instances: Option<&'a Path>,
    /// What a client has to be told because it is not the default.
    pub(super) exports: Vec<String>,
}

impl Banner<'_> {
    /// The start screen.
    pub(super) fn render(&self, screen: &Screen) -> String {
        let paint = screen.paint();
        let mut out = format!(
            "\n  {} {}\n\n",
            paint.text(Style::Strong, "Towpath"),
            paint.text(Style::Dim, env!("CARGO_PKG_VERSION"))
        );
        let mut line = |name: &str, value: String| {
            out += &format!("  {}{value}\n", paint.text(Style::Dim, &format!("{name:<9}")));
        };
        line("Apps", paint.text(Style::Name, &self.apps));
        line("API", paint.text(Style::Name, self.api));
        line("Docs", paint.text(Style::Name, &format!("{}/docs", self.api)));
        if let Some(metrics) = &self.metrics {
            line("Metrics", paint.text(Style::Name, metrics));
        }
        line("Token", self.token.display().to_string());
        line("Data", self.data.display().to_string());
        if let Some(instances) = self.instances {
            line("Running", format!("{} (apps' users may pass through it)", instances.display()));
        }
        out.push('\n');
        for export in &self.exports {
            out += &format!("  {}\n", paint.text(Style::Dim, &format!("export {export}")));
        }
        out += &format!(
            "  {} {}\n       {}\n\n",
            paint.text(Style::Dim, "Try:"),
            paint.text(Style::Strong, "cd your-app && towpath push"),
            paint.text(Style::Dim, "Ctrl-C stops everything; the next start brings it back.")
        );
        out
    }
}
