"""A guest book that forgets."""

import os

from flask import Flask, jsonify, redirect, render_template, request, url_for

app = Flask(__name__)
entries = []


@app.get("/")
def index():
    return render_template("index.html", entries=entries, instance=os.environ.get("TOWPATH_INSTANCE_INDEX", "0"))


@app.post("/")
def sign():
    name = request.form.get("name", "").strip()[:80]
    if name:
        entries.append(name)
        del entries[:-20]
    return redirect(url_for("index"))


@app.get("/healthz")
def healthz():
    return "ok"


@app.get("/env")
def env():
    return jsonify({name: value for name, value in os.environ.items() if name.startswith("TOWPATH_")})
