//! `slackwater approve`, `deny` and `choose`: a question that one process has asked is answered in another.

use crate::program::Place;

const SCRIPT: &str = "
[[rule]]
when = { message_contains = 'build' }
call = [{ tool = 'start_build', arguments = { target = 'all' } }]
[[rule]]
when = { result_of = 'start_build' }
say = 'Then it is not built.'
[[rule]]
say = 'You are welcome.'
";

#[test]
fn a_question_is_answered_from_the_command_line() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_slackwater");
    place.write(
        "slackwater.toml",
        &format!(
            "directory = 'data'\n[model]\nscript = 'script.toml'\n[approvals]\ntools = ['start_build']\n\
             [[tool.server]]\nname = 'builds'\ncommand = ['{program}', 'demo-tools', '--end-with-parent']\n"
        ),
    );
    place.write("script.toml", SCRIPT);
    // The turn ends when nobody but its user can go on.
    let said = place.run(&["chat", "build it"]);
    assert_eq!((said.status, said.out.as_str()), (0, ""), "{}", said.err);
    for says in
        ["question 3: may start_build({\"target\":\"all\"}) be done?", "slackwater approve, deny or choose chat 3"]
    {
        assert!(said.err.contains(says), "{}", said.err);
    }
    let said = place.run(&["approve", "chat", "3"]);
    assert_eq!(said.status, 1);
    assert!(said.err.contains("no runtime runs on data; start one with `slackwater serve`"), "{}", said.err);

    let server = place.serve(&[]);
    for (arguments, says) in [
        (&["approve", "chat", "99"][..], "no question of this number"),
        (&["choose", "chat", "3", "0"], "answered with `approve`"),
        (&["deny", "nobody", "3"], "No message was ever taken"),
        (&["deny", "chat", "3", "--reason", " "], "1 to 2000 characters"),
    ] {
        let said = place.run(arguments);
        assert_eq!(said.status, 1, "{arguments:?}");
        assert!(said.err.contains(says), "{arguments:?}: {}", said.err);
    }
    assert_eq!(place.run(&["deny", "chat"]).status, 2, "which question, it must be told");
    let said = place.run(&["deny", "chat", "3", "--reason", "not today"]);
    assert_eq!((said.status, said.out.as_str()), (0, "taken as record 5 of chat\n"), "{}", said.err);
    let said = place.run(&["approve", "chat", "3"]);
    assert!(said.status == 1 && said.err.contains("answered the question already"), "{}", said.err);
    let said = server.end("TERM");
    assert_eq!(said.status, 0, "{}", said.err);
    // It went on while the server ran; what was denied was not done.
    let said = place.run(&["chat", "thanks"]);
    assert_eq!((said.status, said.out.as_str()), (0, "You are welcome.\n"), "{}", said.err);
}
