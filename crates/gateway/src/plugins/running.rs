//! What plugins keep for one request, from its first phase to its end.

use super::Answer;
use super::exchange::Exchange;
use super::program::{Consumer, Plugins, Program};
use crate::cache::disk::FileBody;
use crate::plugins::work::compression::Chosen;
use crate::request::record::Record;
use crate::resources::upstream::Upstream;
use http::{HeaderMap, Method};
use std::any::Any;
use std::borrow::Cow;
use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use towpath_route::Rule;
use towpath_types::AppRef;

/// How the request goes out, where that differs from how it came.
#[derive(Default)]
pub(crate) struct Rewritten {
    /// Its method.
    pub(crate) method: Option<Method>,
    /// Its path, without the query.
    pub(crate) path: Option<String>,
    /// Its query without `?`; `Some("")` = none.
    pub(crate) query: Option<String>,
    /// What is left of the client's own query where something in it is hidden; `Some("")` = nothing.
    pub(crate) args: Option<String>,
    /// Its host.
    pub(crate) host: Option<String>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Running {
    /// Global rules, consumers, states, all of one moment.
    pub(crate) plugins: Option<Arc<Plugins>>,
    /// What the route runs; with the consumer's plugins merged in once that is known.
    pub(crate) program: Option<Arc<Program>>,
    /// Which plugins passed their filters.
    pub(crate) filtered: FilterMemos,
    /// The rule that it matched.
    pub(crate) rule: Option<Arc<Rule>>,
    /// Where it goes instead of the rule's target.
    pub(crate) aim: Option<AppRef>,
    /// How it goes out.
    pub(crate) rewritten: Rewritten,
    /// Who asks.
    pub(crate) consumer: Option<Arc<Consumer>>,
    /// Who asks, as a provider of identities knows him: claims.
    pub(crate) user: Option<serde_json::Value>,
    /// Which of the consumer's credentials.
    pub(crate) credential: Option<Arc<str>>,
    /// Given back when the request has ended, whatever its end.
    pub(crate) guards: Vec<Box<dyn Any>>,
    /// The headers that went out, for the response phases and the log.
    pub(crate) headers: HeaderMap,
    /// Variables that plugins have set.
    pub(crate) vars: Vec<(Cow<'static, str>, String)>,
    /// Things that one plugin keeps from one phase to another, by the address of its configuration.
    notes: Vec<(usize, Box<dyn Any>)>,
    /// Response headers that a plugin decided on before there was a response.
    pub(crate) reply_headers: Vec<(http::HeaderName, http::HeaderValue)>,
    /// Headers that plugins set although gateways write them themselves.
    pub(crate) forced: Vec<http::HeaderName>,
    /// Headers that plugins write, whatever they write now: the client's word in their place is not passed on.
    pub(crate) written: Vec<http::HeaderName>,
    /// A plugin answered; its name.
    pub(crate) answered: Option<&'static str>,
    /// The client's address, where a plugin knows better.
    pub(crate) client: Option<(IpAddr, u16)>,
    /// Largest request body, where a plugin says so.
    pub(crate) max_body: Option<u64>,
    /// The static upstream that it goes to.
    pub(crate) upstream: Option<Arc<Upstream>>,
    /// The answer of the endpoint, for the log.
    pub(crate) reply: HeaderMap,
    /// The last word on the head that goes out, once the endpoint is known, for each attempt.
    pub(crate) last_touch: Option<LastTouch>,
    /// What is answered if a check refuses the body.
    pub(crate) body_refusal: Rc<RefCell<Option<Box<Answer>>>>,
    /// What sees the upstream's answer first.
    pub(crate) exchange: Option<Box<dyn Exchange>>,
    /// The coding that plugins give the response.
    pub(crate) coding: Option<Chosen>,
    /// The body of a plugin's answer, if that is in a file.
    pub(crate) file: Option<Box<FileBody>>,
}

/// Changes the head of a request whose endpoint is known.
pub(crate) type LastTouch = Rc<dyn Fn(&Record, &mut HeaderMap)>;

/// For the global rules, and for the route.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FilterMemos {
    pub(crate) global: FilterMemo,
    pub(crate) route: FilterMemo,
}

/// Which plugins of a program passed their `_meta.filter`: decided once a request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FilterMemo {
    known: u64,
    passed: u64,
}

impl FilterMemo {
    /// The decision about filter `n`, made by `decide` if there is none.
    pub(crate) fn passes(&mut self, n: u32, decide: impl FnOnce() -> bool) -> bool {
        let Some(bit) = 1_u64.checked_shl(n) else { return decide() };
        if self.known & bit == 0 {
            self.known |= bit;
            if decide() {
                self.passed |= bit;
            }
        }
        self.passed & bit != 0
    }
}

impl Running {
    /// Keeps something for a later phase of the same plugin.
    pub(crate) fn note<P: ?Sized>(&mut self, plugin: &P, note: impl Any) {
        self.notes.push((address(plugin), Box::new(note)));
    }

    /// What the plugin kept.
    pub(crate) fn noted<P: ?Sized, T: Any>(&mut self, plugin: &P) -> Option<&mut T> {
        let at = address(plugin);
        self.notes.iter_mut().find(|(plugin, _)| *plugin == at)?.1.downcast_mut()
    }

    /// The same for the log.
    pub(crate) fn noted_ref<P: ?Sized, T: Any>(&self, plugin: &P) -> Option<&T> {
        let at = address(plugin);
        self.notes.iter().filter(|(plugin, _)| *plugin == at).find_map(|(_, note)| note.downcast_ref())
    }

    /// Sets a header of the response, whoever gives that.
    pub(crate) fn set_reply_header(&mut self, name: http::HeaderName, value: http::HeaderValue) {
        self.reply_headers.retain(|(known, _)| *known != name);
        self.reply_headers.push((name, value));
    }

    /// Sets a variable.
    pub(crate) fn set_var(&mut self, name: impl Into<Cow<'static, str>>, value: String) {
        let name = name.into();
        self.vars.retain(|(known, _)| *known != name);
        self.vars.push((name, value));
    }
}

fn address<P: ?Sized>(plugin: &P) -> usize {
    std::ptr::from_ref(plugin).cast::<()>() as usize
}
