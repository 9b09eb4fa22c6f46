// A list of notes that forgets.
const path = require("node:path");
const express = require("express");

const app = express();
const notes = [];

app.use(express.json({ limit: "10kb" }));
app.use(express.static(path.join(__dirname, "public")));

app.get("/notes", (request, response) => response.json(notes));
app.post("/notes", (request, response) => {
  const text = String(request.body.text ?? "").slice(0, 200);
  notes.push(text);
  response.status(201).json({ text });
});
app.get("/healthz", (request, response) => response.type("text").send("ok"));
app.get("/env", (request, response) => {
  const told = Object.entries(process.env).filter(([name]) => name.startsWith("TOWPATH_"));
  response.json(Object.fromEntries(told));
});

const server = app.listen(process.env.PORT ?? 3000, process.env.HOST ?? "0.0.0.0");

process.on("SIGTERM", () => server.close(() => process.exit(0)));
