// Reads a stream with the stock EventSource client and prints what it gets: one JSON object a line.
//
// In: where the client is installed, the URL of a stream. Out: {"open": true} at each connection, {"error": ...} at each loss of it,
// {"kind", "id", "data"} at each event. Always: connects again only as the client does by itself; ends when killed.
import { createRequire } from "node:module";

const [root, url] = process.argv.slice(2);
const { EventSource } = createRequire(`${root}/`)("eventsource");
const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

const source = new EventSource(url);
source.onopen = () => print({ open: true });
source.onerror = (error) => print({ error: error.message ?? "", closed: source.readyState === EventSource.CLOSED });
for (const kind of ["message", "turn", "result", "event", "failure", "waiting", "stopped", "started", "chunk", "void"]) {
  source.addEventListener(kind, ({ lastEventId, data }) => print({ kind, id: lastEventId, data: JSON.parse(data) }));
}
