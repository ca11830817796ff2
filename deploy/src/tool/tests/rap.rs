//! RAP servers that behave, that do not, and one built on the reference types.

use super::*;
use crate::tool::wire::Callback;
use slackwater_core::record::{Origin, Proof};

#[tokio::test]
async fn a_call_is_taken_over_under_its_name_with_a_capability_for_it_alone() {
    let server = TestServer::with_tools(&["build", "check"], &[]).await;
    let mut running = ready(&[&server]).await;
    assert_eq!(running.offered(), ["build", "check"]);
    running.call(7, "build", r#" {"z": 1,  "a": [1.50]} "#);
    assert_eq!(running.next().await, Record::Accepted(id(7)));
    let body = server.seen("invoke").remove(0);
    assert_eq!(body["operation"], "build");
    assert_eq!(body["arguments"], json!({"z": 1, "a": [1.5]}));
    assert_eq!(body["id"], id(7).effect_id(thread()));
    assert_eq!(body["group_id"], thread().to_string());
    assert_eq!(body["thread_ancestors"], json!([]));
    let token = body["callback_url"].as_str().unwrap().strip_prefix("http://127.0.0.1:9/v1/callbacks/").unwrap();
    assert_eq!(running.key.verify(token, 0), Ok((thread(), id(7))));
    // No arguments at all stand for an empty object.
    running.call(8, "check", "");
    assert_eq!(running.next().await, Record::Accepted(id(8)));
    assert_eq!(server.seen("invoke")[1]["arguments"], json!({}));
}

#[tokio::test]
async fn a_toolset_with_faults_is_refused_with_all_of_them_and_the_others_are_used() {
    let faulty = TestServer::with_manifest(
        |_| {
            json!({"name": "bad name", "endpoint": "ftp://x", "tools": [
                {"name": "a b", "description": "", "inputSchema": {"type": "object"}},
                {"name": "sleep", "description": "", "inputSchema": {"type": "object"}},
                {"name": "receive_event__injected", "description": "", "inputSchema": {"type": "object"}},
                {"name": "twice", "description": "", "inputSchema": {"type": "object"}},
                {"name": "twice", "description": "", "inputSchema": {"type": "object"}},
                {"name": "list", "description": "", "inputSchema": {"type": "array"}},
                {"name": "odd", "description": "", "inputSchema": {"type": "object", "required": "a"}},
                {"name": "away", "description": "", "inputSchema": {"type": "object", "$ref": "http://127.0.0.1:9/"}},
            ]})
        },
        &[],
    )
    .await;
    let no_toolset = TestServer::with_manifest(|_| json!({"tools": 5}), &[]).await;
    let named_like_us =
        TestServer::with_manifest(|base| json!({"name": "slackwater", "endpoint": base, "tools": []}), &[]).await;
    let good = TestServer::with_tools(&["good"], &[]).await;
    let servers = [faulty.config(), no_toolset.config(), named_like_us.config(), good.config()];
    let mut running = run(config(&servers), Vec::new());
    let troubles = running.tools.ready(PATIENCE).await;
    assert_eq!(troubles.len(), 3);
    for said in [
        "\"bad name\" is not 1 to 64",
        "endpoint \"ftp://x\" is not an http or https URL",
        "\"a b\" is not 1 to 64",
        "\"sleep\" belongs to the runtime",
        "\"receive_event__injected\" belongs to the runtime",
        "\"twice\" is there twice",
        "schema of \"list\" is not one of an object",
        "schema of \"odd\" cannot be used: \"a\" is not of type \"array\"",
        "schema of \"away\" cannot be used: ",
    ] {
        assert!(troubles[0].why.contains(said), "{said}: {}", troubles[0].why);
    }
    assert!(troubles[1].why.contains("not a RAP toolset"), "{}", troubles[1].why);
    assert!(troubles[2].why.contains("\"slackwater\" belongs to the runtime"), "{}", troubles[2].why);
    assert_eq!(running.offered(), ["good"]);
    running.call(1, "twice", "{}");
    let error = running.error(1).await;
    assert!(error.contains("no tool named \"twice\"") && error.contains("The tools there are: good."), "{error}");
    assert!(error.contains("cannot be used at present"), "{error}");
    running.call(2, "good", "{}");
    assert_eq!(running.next().await, Record::Accepted(id(2)));
}

#[tokio::test]
async fn what_a_server_refuses_is_final() {
    for status in [400, 404, 302] {
        let server = TestServer::with_tools(&["build"], &[Reaction::Status(status, " no such target ")]).await;
        let mut running = ready(&[&server]).await;
        running.call(1, "build", "{}");
        let result = running.result().await;
        assert!(result.is_error);
        assert_eq!(result.origin, Origin { who: "test-tools".into(), proof: Proof::Process });
        let said = text(&result);
        assert!(said.contains(&status.to_string()) && said.contains("and said: no such target. Do not"), "{said}");
        assert_eq!(server.seen("invoke").len(), 1);
        running.call(2, "build", "{}");
        assert_eq!(running.next().await, Record::Accepted(id(2)));
    }
}

#[tokio::test]
async fn what_may_pass_is_tried_again_under_the_same_name() {
    let failing = Reaction::Status(500, "");
    let server = TestServer::with_tools(&["build"], &[failing.clone(), failing.clone()]).await;
    let mut running = ready(&[&server]).await;
    running.call(1, "build", "{}");
    assert_eq!(running.next().await, Record::Accepted(id(1)));
    let seen = server.seen("invoke");
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|body| *body == seen[0]));
}

#[tokio::test]
async fn what_does_not_pass_becomes_an_error_result() {
    let failing = Reaction::Status(503, "down for repairs");
    let server = TestServer::with_tools(&["build"], &vec![failing; 3]).await;
    let mut running = ready(&[&server]).await;
    running.call(1, "build", "{}");
    let error = running.error(1).await;
    assert!(error.contains("in 3 attempts: it answered 503") && error.contains("down for repairs"), "{error}");
    running.call(2, "build", "{}");
    assert_eq!(running.next().await, Record::Accepted(id(2)));
}

#[tokio::test]
async fn a_server_that_hangs_or_is_elsewhere_holds_nobody_else() {
    let hanging = TestServer::with_tools(&["hang"], &vec![Reaction::Hang; 2]).await;
    let (_closed, closed) = reserve("127.0.0.1:0");
    let elsewhere = TestServer::with_manifest(|_| manifest(&format!("http://{closed}"), &["away"]), &[]).await;
    let good = TestServer::with_tools(&["good"], &[]).await;
    let servers = [hanging.config(), elsewhere.config(), good.config()];
    let limits = Config { invocation_timeout_ms: 300, invocation_attempts: 2, ..config(&servers) };
    let mut running = run(limits, Vec::new());
    assert_eq!(running.tools.ready(PATIENCE).await, []);
    running.call(1, "hang", "{}");
    hanging.has_seen("invoke", 1).await;
    running.call(2, "good", "{}");
    assert_eq!(running.next().await, Record::Accepted(id(2)));
    let error = running.error(1).await;
    assert!(error.contains("in 2 attempts: it did not answer in time"), "{error}");
    running.call(3, "away", "{}");
    let error = running.error(3).await;
    assert!(error.contains("cannot be connected to"), "{error}");
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_refused_by_the_runtime_and_not_sent() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let other =
        json!({"type": "object", "properties": {"s": {"$ref": "#/$defs/s"}}, "$defs": {"s": {"type": "string"}}});
    let server = TestServer::with_manifest(
        |base| {
            let mut manifest = manifest(base, &["build", "check", "watch"]);
            manifest["tools"][0]["inputSchema"] = schema.clone();
            manifest["tools"][1]["inputSchema"] = schema;
            manifest["tools"][2]["inputSchema"] = other;
            manifest
        },
        &[],
    )
    .await;
    let mut running = ready(&[&server]).await;
    for (name, arguments, said) in [
        ("build", r#"{"a": "#, "not valid JSON: EOF"),
        ("build", "[1]", "not an object"),
        ("check", r#"{"n": "1"}"#, "at /n: \"1\" is not of type \"integer\""),
        ("check", "", "at the root: \"n\" is a required property"),
        ("watch", r#"{"s": null}"#, "at /s: null is not of type \"string\""),
    ] {
        running.call(1, name, arguments);
        let result = running.result().await;
        assert!(result.is_error && result.origin == Origin::runtime(), "{result:?}");
        assert!(text(&result).contains(said) && text(&result).contains(&format!("Call {name} again")), "{result:?}");
    }
    assert_eq!(server.seen("invoke").len(), 0);
    for (number, name, arguments) in [(1, "build", json!({"n": 1})), (2, "watch", json!({}))] {
        running.call(number, name, &arguments.to_string());
        assert_eq!(running.next().await, Record::Accepted(id(number)));
        assert_eq!(server.seen("invoke").last().unwrap()["arguments"], arguments);
    }
}

#[tokio::test]
async fn a_name_that_two_servers_share_is_usable_in_neither() {
    let one = TestServer::with_tools(&["shared", "one"], &[]).await;
    let two = TestServer::with_tools(&["shared", "two"], &[]).await;
    let mut running = ready(&[&one, &two]).await;
    assert_eq!(running.offered(), ["one", "two"]);
    running.call(1, "shared", "{}");
    let error = running.error(1).await;
    assert!(error.contains("two tool servers offer that name"), "{error}");
    running.call(2, "two", "{}");
    assert_eq!(running.next().await, Record::Accepted(id(2)));
    assert_eq!((one.seen("invoke").len(), two.seen("invoke").len()), (0, 1));
}

#[tokio::test]
async fn a_server_that_comes_later_is_found_and_its_calls_have_waited() {
    let (socket, address) = reserve("127.0.0.1:0");
    let server = ServerConfig { url: Some(format!("http://{address}")), ..ServerConfig::default() };
    let mut running = run(config(&[server]), Vec::new());
    running.call(1, "build", "{}");
    running.call(2, "build", "{}");
    running.cancel(2, "build");
    let troubles = running.tools.ready(Duration::from_millis(300)).await;
    assert!(troubles[0].why.contains("cannot be connected to"), "{troubles:?}");
    let server = TestServer::on(socket.listen(64).unwrap(), |base| manifest(base, &["build"]), &[]);
    assert_eq!(running.next().await, Record::Accepted(id(1)));
    assert_eq!(running.tools.ready(PATIENCE).await, []);
    running.call(3, "build", "{}");
    assert_eq!(running.next().await, Record::Accepted(id(3)));
    assert_eq!(server.seen("invoke").len(), 2);
}

#[tokio::test]
async fn a_server_that_is_replaced_is_asked_again_what_it_offers() {
    let (old_socket, address) = reserve("127.0.0.1:0");
    let (new_socket, _) = reserve(&address.to_string());
    // In a runtime of its own, so that its connections end with it.
    let old = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let bound = old.spawn(async move {
        TestServer::on(old_socket.listen(64).unwrap(), |base| manifest(base, &["build", "old"]), &[])
    });
    let server = bound.await.unwrap();
    let mut running = run(Config { invocation_attempts: 1_000, ..config(&[server.config()]) }, Vec::new());
    assert_eq!(running.tools.ready(PATIENCE).await, []);
    running.call(1, "build", "{}");
    assert_eq!(running.next().await, Record::Accepted(id(1)));
    drop(server);
    old.shutdown_background();
    running.call(2, "build", "{}");
    until(|| !running.tools.troubles().is_empty()).await;
    // Its tools are still offered: it may come back, and calls wait for it.
    assert_eq!(running.offered(), ["build", "old"]);
    let _new = TestServer::on(new_socket.listen(64).unwrap(), |base| manifest(base, &["build", "new"]), &[]);
    assert_eq!(running.next().await, Record::Accepted(id(2)));
    until(|| running.offered() == ["build", "new"]).await;
    assert_eq!(running.tools.troubles(), []);
}

#[tokio::test]
async fn an_unknown_tool_waits_a_bounded_time_for_servers_not_found() {
    let (_closed, closed) = reserve("127.0.0.1:0");
    let server = ServerConfig { url: Some(format!("http://{closed}")), ..ServerConfig::default() };
    let mut running = run(Config { unknown_tool_wait_ms: 50, ..config(&[server]) }, Vec::new());
    running.call(1, "build", "{}");
    let error = running.error(1).await;
    assert!(error.contains("no tool named \"build\", and no other tool either"), "{error}");
    assert!(error.contains(&format!("The tool server http://{closed} cannot be used at present")), "{error}");
}

#[tokio::test]
async fn a_cancelled_call_is_dropped_and_its_server_told_without_waiting() {
    let failing = Reaction::Status(500, "");
    let server = TestServer::with_tools(&["build"], &[failing]).await;
    let limits =
        Config { retry_first_ms: 600_000, retry_max_ms: 600_000, invocations_max: 1, ..config(&[server.config()]) };
    let mut running = run(limits, Vec::new());
    assert_eq!(running.tools.ready(PATIENCE).await, []);
    // The first is between two attempts, the second waits in line; the server never answers a cancellation.
    running.call(1, "build", "{}");
    running.call(2, "build", "{}");
    server.has_seen("invoke", 1).await;
    running.cancel(2, "build");
    running.cancel(1, "build");
    running.call(3, "build", "{}");
    assert_eq!(running.next().await, Record::Accepted(id(3)));
    server.has_seen("cancel", 2).await;
    let told: Vec<Value> = [2, 1]
        .map(|number| json!({"thread_id": thread().to_string(), "tool_call_id": id(number).effect_id(thread())}))
        .into();
    let mut seen = server.seen("cancel");
    seen.sort_by_key(|body| std::cmp::Reverse(body["tool_call_id"].to_string()));
    assert_eq!(seen, told);
    assert_eq!(server.seen("invoke").len(), 2);
    // A call that was cancelled may be made again.
    running.call(1, "build", "{}");
    assert_eq!(running.next().await, Record::Accepted(id(1)));
}

#[tokio::test]
async fn so_many_calls_at_a_time_and_the_same_one_once() {
    let server = TestServer::with_tools(&["build"], &vec![Reaction::Gate; 5]).await;
    let mut running = run(Config { invocations_max: 2, ..config(&[server.config()]) }, Vec::new());
    assert_eq!(running.tools.ready(PATIENCE).await, []);
    for number in [1, 2, 3, 4, 5, 1, 3] {
        running.call(number, "build", "{}");
    }
    let mut accepted = Vec::new();
    for done in 0..5 {
        server.has_seen("invoke", (done + 2).min(5)).await;
        assert!(server.seen("invoke").len() <= done + 2);
        server.gate.notify_one();
        accepted.push(running.next().await);
    }
    let order: Vec<Value> = server.seen("invoke").iter().map(|body| body["id"].clone()).collect();
    // Two start together, in either order on the wire; the others follow in line.
    let name = |number: u64| json!(id(number).effect_id(thread()));
    assert!(order[..2].contains(&name(1)) && order[..2].contains(&name(2)), "{order:?}");
    assert_eq!(order[2..], [name(3), name(4), name(5)]);
    accepted.sort_by_key(|record| format!("{record:?}"));
    assert_eq!(accepted, [1, 2, 3, 4, 5].map(|number| Record::Accepted(id(number))));
}

#[tokio::test]
async fn a_server_on_the_reference_types_works_unchanged() {
    use rap_protocol::{DiffContent, DisplaySegment, PlainCallbackClient, RapInvocation, send_tool_result};

    // The gateway's part: takes callbacks in.
    let (send, mut callbacks) = tokio::sync::mpsc::unbounded_channel();
    let receiver = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let callback_base = format!("http://{}", receiver.local_addr().unwrap());
    let app = axum::Router::new().route(
        "/v1/callbacks/{token}",
        post(move |axum::extract::Path(token): axum::extract::Path<String>, body: axum::body::Bytes| async move {
            send.send((token, body)).unwrap();
        }),
    );
    tokio::spawn(async move { axum::serve(receiver, app).await.unwrap() });

    // A tool server as its author would write it.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let toolset = rap_protocol::ToolsetManifest {
        name: "reference".into(),
        description: None,
        endpoint: format!("{base}/invoke"),
        needs_migration: false,
        tools: vec![rap_protocol::ToolDef {
            name: "echo".into(),
            description: "Says it again.".into(),
            input_schema: json!({"type": "object"}),
            annotations: Some(json!({"destructive": false})),
            display_script: None,
        }],
    };
    let app = axum::Router::new().route("/.well-known/rap-toolset", get(|| async move { Json(toolset) })).route(
        "/invoke",
        post(|Json(invocation): Json<RapInvocation>| async move {
            tokio::spawn(async move {
                let diff = DisplaySegment::Diff(DiffContent { path: "p".into(), patch: "+x".into() });
                let said = invocation.arguments["text"].as_str().unwrap().to_owned();
                send_tool_result(&PlainCallbackClient::new(), &invocation, &said, Some(vec![diff]), true).await;
            });
            StatusCode::OK
        }),
    );
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });

    let server = ServerConfig { url: Some(base), ..ServerConfig::default() };
    let (catalog, key) = (Catalog::default(), CapabilityKey::random().unwrap());
    let (from, to, mut tools) =
        start(config(&[server]), Vec::new(), catalog.clone(), key.clone(), callback_base).unwrap();
    assert_eq!(tools.ready(PATIENCE).await, []);
    let mut running = Running { from, to, tools, catalog, key };
    assert_eq!(running.catalog.tools()[0].annotations, Some(json!({"destructive": false})));
    running.call(1, "echo", r#"{"text": "hallo"}"#);
    assert_eq!(running.next().await, Record::Accepted(id(1)));
    let (token, body) = tokio::time::timeout(PATIENCE, callbacks.recv()).await.unwrap().unwrap();
    let (of, call) = running.key.verify(&token, 0).unwrap();
    let Callback::ToolResult(result) = Callback::parse(&body).unwrap() else { panic!("{body:?}") };
    let result = result.into_record(of, call, Origin { who: "reference".into(), proof: Proof::Capability }).unwrap();
    assert_eq!((result.call, text(&result), result.subscription), (id(1), "hallo", true));
    assert_eq!(result.display.as_deref(), Some(r#"[{"type":"diff","content":{"path":"p","patch":"+x"}}]"#));
}
