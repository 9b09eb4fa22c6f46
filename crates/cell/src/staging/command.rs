//! Making a start command.

/// Where a recipe may put settings for the shell, relative to the app's directory.
pub(crate) const ENV_FILE: &str = ".towpath/env";

/// The command to start with `/bin/sh -c`: reads [`ENV_FILE`] if there is one, and replaces the shell by the program
/// where that is possible, so that signals reach the program itself.
pub(crate) fn compose(env_file: bool, command: &str) -> String {
    let command = command.trim();
    let exec = if is_plain(command) { "exec " } else { "" };
    if env_file { format!(". ./{ENV_FILE}; {exec}{command}") } else { format!("{exec}{command}") }
}

/// Whether it is one call of one program.
pub(crate) fn is_plain(command: &str) -> bool {
    const NOT_PROGRAMS: &[&str] = &[
        "!", ".", "[", ":", "case", "cd", "eval", "exec", "exit", "export", "for", "if", "set", "source",
        "test", "trap", "ulimit", "umask", "unset", "until", "wait", "while", "{",
    ];
    let Some(first) = command.split_whitespace().next() else { return false };
    // What is in single quotes means nothing to the shell.
    let command: String = command.split('\'').step_by(2).collect();
    !first.contains('=')
        && !NOT_PROGRAMS.contains(&first)
        && !command.contains(['\n', ';', '&', '|', '<', '>', '(', ')', '`', '#'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_single_programs_replace_the_shell() {
        assert_eq!(compose(false, " node server.js "), "exec node server.js");
        assert_eq!(
            compose(true, "gunicorn -b 0.0.0.0:$PORT a:b"),
            ". ./.towpath/env; exec gunicorn -b 0.0.0.0:$PORT a:b"
        );
        assert_eq!(compose(false, "gunicorn 'a:b()'"), "exec gunicorn 'a:b()'");
        for text in [
            "cd a && ./b",
            "A=1 ./b",
            "a | b",
            "if x; then y; fi",
            "export A",
            "a; b",
            "(a)",
            "gunicorn a:b()",
        ] {
            assert_eq!(compose(false, text), text);
        }
    }
}
