#!/usr/bin/env python3
"""S3 clients as people use them (boto3, the AWS CLI) through `towpath gateway --file` to an S3 server.

  proof.py TOWPATH [--server http://127.0.0.1:9000]     without --server: moto, started here

The gateway runs with examples/object-storage.yaml, of which only addresses are changed. Prints a line for each thing shown; exits
1 at the first that is not."""
import argparse
import concurrent.futures
import hashlib
import http.server
import io
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parent.parent / "examples/object-storage.yaml"
KEYS = ("AKJACK", "jacks-secret-key")
MIB = 1 << 20
BEGAN = time.monotonic()
# Everything is on this machine.
for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
    del os.environ[name]


def say(text):
    print(f"{time.monotonic() - BEGAN:6.1f} s  {text}", flush=True)


def check(holds, text):
    if not holds:
        sys.exit(f"NOT SHOWN: {text}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(what, holds, seconds=20):
    end = time.monotonic() + seconds
    while not holds():
        check(time.monotonic() < end, f"never: {what}")
        time.sleep(0.03)


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Stage:
    """The server, the gateway and its files; all ended at the end."""

    def __init__(self, towpath, server, folder):
        self.folder, self.children = Path(folder), []
        if server is None:
            port = free_port()
            moto = Path(sys.executable).parent / "moto_server"
            self.run([str(moto), "-H", "127.0.0.1", "-p", str(port)], "moto.log")
            until("moto listens", lambda: listens(port))
            server = f"127.0.0.1:{port}"
        self.server = server.removeprefix("http://")
        self.slow = SlowServer()
        self.certify()
        self.port, self.tls = free_port(), free_port()
        self.file = self.folder / "object-storage.yaml"
        self.write()
        settings = self.folder / "towpath.toml"
        settings.write_text(f"""
[gateway]
listen = ["127.0.0.1:{self.port}"]
tls = [{{ listen = "127.0.0.1:{self.tls}", certificate = "{self.folder}/cert.pem", key = "{self.folder}/key.pem" }}]
""")
        command = [towpath, "gateway", "--config", str(settings), "--file", str(self.file), "--data-dir", str(self.folder / "data")]
        self.run(command, "gateway.log")
        until("the gateway listens", lambda: listens(self.port) and listens(self.tls))

    def run(self, command, log):
        with open(self.folder / log, "wb") as out:
            self.children.append(subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL))

    def certify(self):
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=s3.localhost"]
        names = "subjectAltName=DNS:s3.localhost,DNS:*.s3.localhost"
        command += ["-addext", names, "-keyout", str(self.folder / "key.pem"), "-out", str(self.folder / "cert.pem")]
        subprocess.run(command, check=True, capture_output=True)

    def write(self, change=lambda text: text):
        """The example with real addresses, and a route to a slow server beside it."""
        text = EXAMPLE.read_text().replace("127.0.0.1:9000", self.server)
        slow = f"""
  - id: slow
    uri: /slow/*
    upstream:
      type: roundrobin
      nodes: {{"127.0.0.1:{self.slow.port}": 1}}
    plugins:
      s3-admission: {{concurrency: 4, key: slow, read: {{weight: 8, max_wait: 30}}, write: {{weight: 1, max_wait: 30, max_share: 100}}}}
"""
        fresh = self.folder / "new.yaml"
        fresh.write_text(change(text.replace("\n#END", slow + "#END")))
        fresh.rename(self.file)

    def client(self, **more):
        more = {"endpoint_url": f"http://127.0.0.1:{self.port}", "aws_access_key_id": KEYS[0], "aws_secret_access_key": KEYS[1]} | more
        config = Config(retries={"max_attempts": 1}, max_pool_connections=32, s3=more.pop("s3", {"addressing_style": "path"}), signature_version="s3v4")
        return boto3.client("s3", region_name="us-east-1", config=config, **more)

    def end(self):
        for child in self.children:
            child.send_signal(signal.SIGTERM)
        for child in self.children:
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()


class SlowServer:
    """Takes 20 ms for each request, and counts how many it has at a time."""

    def __init__(self):
        outer = self
        self.lock, self.now, self.most = threading.Lock(), 0, 0

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                self.rfile.read(int(self.headers.get("content-length", 0)))
                with outer.lock:
                    outer.now += 1
                    outer.most = max(outer.most, outer.now)
                time.sleep(0.02)
                with outer.lock:
                    outer.now -= 1
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            do_GET = do_PUT = answer

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads, request_queue_size = True, 128

        server = Server(("127.0.0.1", 0), Handler)
        self.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()


def refused(status, code, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except ClientError as error:
        seen = (error.response["ResponseMetadata"]["HTTPStatusCode"], error.response["Error"]["Code"])
        check(seen == (status, code), f"{(status, code)}, but {seen}")
        return error.response
    check(False, f"a refusal with {code}")


def objects(stage):
    s3 = stage.client()
    s3.create_bucket(Bucket="photos")
    body = random.Random(1).randbytes(70_000)
    s3.put_object(Bucket="photos", Key="a b/é+1.bin", Body=body, ContentType="image/x", Metadata={"who": "jack"})
    head = s3.head_object(Bucket="photos", Key="a b/é+1.bin")
    check((head["ContentLength"], head["ContentType"], head["Metadata"]) == (70_000, "image/x", {"who": "jack"}), "HEAD")
    check(s3.get_object(Bucket="photos", Key="a b/é+1.bin")["Body"].read() == body, "GET")
    part = s3.get_object(Bucket="photos", Key="a b/é+1.bin", Range="bytes=100-199")
    check(part["Body"].read() == body[100:200] and part["ResponseMetadata"]["HTTPStatusCode"] == 206, "range")
    s3.copy_object(Bucket="photos", Key="copy", CopySource={"Bucket": "photos", "Key": "a b/é+1.bin"})
    for n in range(5):
        s3.put_object(Bucket="photos", Key=f"many/{n}", Body=b"")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket="photos", Prefix="many/", PaginationConfig={"PageSize": 2})
    check([item["Key"] for page in pages for item in page["Contents"]] == [f"many/{n}" for n in range(5)], "ListObjectsV2")
    check(len(s3.list_objects(Bucket="photos", Delimiter="/")["CommonPrefixes"]) == 2, "ListObjects")
    s3.put_object_tagging(Bucket="photos", Key="copy", Tagging={"TagSet": [{"Key": "k", "Value": "v"}]})
    check(s3.get_object_tagging(Bucket="photos", Key="copy")["TagSet"][0]["Value"] == "v", "tagging")
    gone = s3.delete_objects(Bucket="photos", Delete={"Objects": [{"Key": f"many/{n}"} for n in range(5)]})
    check(len(gone["Deleted"]) == 5, "DeleteObjects")
    s3.delete_object(Bucket="photos", Key="copy")
    refused(404, "NoSuchKey", s3.get_object, Bucket="photos", Key="copy")
    say("boto3: put, head, get, range, copy, list in pages, tagging, delete, delete many")


class Noise(io.RawIOBase):
    """So many bytes, the same each time, that are not kept."""

    def __init__(self, size):
        self.size, self.at, self.block = size, 0, random.Random(7).randbytes(MIB)

    def readable(self):
        return True

    def readinto(self, into):
        n = min(len(into), self.size - self.at, MIB - self.at % MIB)
        into[:n] = self.block[self.at % MIB : self.at % MIB + n]
        self.at += n
        return n

    def sum(self):
        made = hashlib.sha256()
        for at in range(0, self.size, MIB):
            made.update(self.block[: min(MIB, self.size - at)])
        return made.hexdigest()


class Sum(io.RawIOBase):
    def __init__(self):
        self.made, self.size = hashlib.sha256(), 0

    def write(self, piece):
        self.made.update(piece)
        self.size += len(piece)
        return len(piece)


def transfer(stage, what, size, **more):
    s3, noise, back = stage.client(**more), Noise(size), Sum()
    parts = TransferConfig(multipart_threshold=8 * MIB, multipart_chunksize=16 * MIB, max_concurrency=3, use_threads=True)
    began = time.monotonic()
    s3.upload_fileobj(io.BufferedReader(noise, MIB), "photos", "large", Config=parts)
    s3.download_fileobj("photos", "large", back, Config=TransferConfig(use_threads=False))
    check((back.size, back.made.hexdigest()) == (size, noise.sum()), f"{size} bytes came back")
    check("-" in s3.head_object(Bucket="photos", Key="large")["ETag"], "it was uploaded in parts")
    say(f"{what}: {size // MIB} MiB in parts, up and down, in {time.monotonic() - began:.1f} s")


def http_status(url, method="GET", body=None):
    # Without a type urllib says that it is a form, which moto reads as one.
    headers = {"content-type": "application/octet-stream"} if body is not None else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers, method=method)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def presigned(stage):
    s3 = stage.client()
    sign = lambda what, **more: s3.generate_presigned_url(what, Params={"Bucket": "photos", "Key": "signed"}, **more)
    put = sign("put_object", ExpiresIn=60)
    check(http_status(put, "PUT", b"by url")[0] == 200, "presigned PUT")
    get = sign("get_object", ExpiresIn=60)
    check(http_status(get) == (200, "by url"), "presigned GET")
    status, text = http_status(get.replace("Expires=60", "Expires=61"))
    check(status == 403 and "<Code>SignatureDoesNotMatch</Code>" in text, "a changed URL")
    short = sign("get_object", ExpiresIn=1)
    until("the URL expires", lambda: "Request has expired" in http_status(short)[1])
    say("presigned GET and PUT; refused when changed, and when expired")


def identities(stage):
    refused(403, "SignatureDoesNotMatch", stage.client(aws_secret_access_key="wrong").list_buckets)
    refused(403, "InvalidAccessKeyId", stage.client(aws_access_key_id="AKNOBODY").list_buckets)
    status, text = http_status(f"http://127.0.0.1:{stage.port}/photos")
    check(status == 403 and "<Code>AccessDenied</Code>" in text, "nobody")
    say("wrong secret, unknown key, no signature: refused in S3's words")


def virtual_hosts(stage):
    real = socket.getaddrinfo
    here = lambda host, *more, **named: real("127.0.0.1" if str(host).endswith("s3.localhost") else host, *more, **named)
    socket.getaddrinfo = here
    try:
        more = {"endpoint_url": f"https://s3.localhost:{stage.tls}", "verify": str(stage.folder / "cert.pem"), "s3": {"addressing_style": "virtual"}}
        s3 = stage.client(**more)
        # Over TLS boto3 sends its checksums as trailers of bodies in chunks.
        sent = []
        s3.meta.events.register("before-send.s3", lambda request, **_: sent.append(request.headers.get("x-amz-content-sha256")))
        s3.put_object(Bucket="photos", Key="by/host", Body=b"trailing", ChecksumAlgorithm="CRC32")
        check(sent in (["STREAMING-UNSIGNED-PAYLOAD-TRAILER"], [b"STREAMING-UNSIGNED-PAYLOAD-TRAILER"]), f"a trailer, but {sent}")
        s3.put_object(Bucket="photos", Key="by/host0", Body=b"")
        check(s3.get_object(Bucket="photos", Key="by/host")["Body"].read() == b"trailing", "virtual host style")
        check(s3.get_object(Bucket="photos", Key="by/host0")["Body"].read() == b"", "an empty object")
        check(stage.client().get_object(Bucket="photos", Key="by/host")["ContentLength"] == 8, "the chunks are unwrapped")
        url = s3.generate_presigned_url("get_object", Params={"Bucket": "photos", "Key": "by/host"})
        check(url.startswith("https://photos.s3.localhost"), url)
        transfer(stage, "virtual hosts over TLS, checksums in trailers", 24 * MIB, **more)
    finally:
        socket.getaddrinfo = real


def command_line(stage):
    aws = Path(sys.executable).parent / "aws"
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": KEYS[0], "AWS_SECRET_ACCESS_KEY": KEYS[1], "AWS_DEFAULT_REGION": "us-east-1", "AWS_MAX_ATTEMPTS": "1",
        "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_EC2_METADATA_DISABLED": "true",
    }

    def run(*arguments, fails=False):
        command = [sys.executable, str(aws), "--endpoint-url", f"http://127.0.0.1:{stage.port}", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, cwd=stage.folder)
        check((done.returncode != 0) == fails, f"aws {arguments}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    up, down = stage.folder / "up.bin", stage.folder / "down.bin"
    up.write_bytes(random.Random(3).randbytes(20 * MIB))
    run("s3", "cp", "--only-show-errors", "up.bin", "s3://photos/cli/up.bin")
    check(re.search(r"20971520 +up\.bin", run("s3", "ls", "s3://photos/cli/")), "aws s3 ls")
    run("s3", "cp", "--only-show-errors", "s3://photos/cli/up.bin", "down.bin")
    check(up.read_bytes() == down.read_bytes(), "aws s3 cp both ways")
    check("AccessDenied" in run("s3", "rb", "s3://photos", fails=True), "DeleteBucket is off")
    say("AWS CLI: cp of 20 MiB up and down, ls; rb refused")


def switches(stage):
    s3 = stage.client()
    refused(403, "AccessDenied", s3.delete_bucket, Bucket="photos")
    s3.create_bucket(Bucket="open")
    refusal = refused(403, "AccessDenied", s3.put_object, Bucket="archive-1", Key="k", Body=b"x")
    check(refusal["Error"]["Message"] == "The archive is read only.", "the rule's own message")
    check(refusal["ResponseMetadata"]["RequestId"], "a request id")
    rule = "- operations: [DeleteBucket,"
    stage.write(lambda text: text.replace(rule, "- {operations: [PutObject], access_keys: [AKJ*], code: NotImplemented}\n          " + rule).replace(
        "        rules:", "        ordered_list: refuse\n        rules:"))

    def put():
        try:
            return s3.put_object(Bucket="open", Key="k", Body=b"x")["ResponseMetadata"]["HTTPStatusCode"]
        except ClientError as error:
            return error.response["ResponseMetadata"]["HTTPStatusCode"]

    until("PUT is switched off", lambda: put() == 501)
    refused(501, "NotImplemented", s3.list_objects_v2, Bucket="photos")
    check(s3.head_object(Bucket="photos", Key="signed")["ContentLength"] == 6, "the rest goes on")
    stage.write()
    until("PUT is switched on", lambda: put() == 200)
    check(s3.list_objects_v2(Bucket="photos")["KeyCount"] > 0, "lists are back")
    say("operations switched off and on while it ran; ordered LIST 501")


def saturation(stage):
    """24 that PUT and 8 that GET, at 4 slots of 20 ms: GETs wait less, PUTs are not forgotten, no more than 4 are at the server."""
    waits, end = {"GET": [], "PUT": []}, time.monotonic() + 2.5
    url = f"http://127.0.0.1:{stage.port}/slow/bucket/key"

    def ask(method):
        while time.monotonic() < end:
            began = time.monotonic()
            status, _ = http_status(url, method, b"x" if method == "PUT" else None)
            check(status == 200, f"{method}: {status}")
            waits[method].append(time.monotonic() - began)

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        for done in [pool.submit(ask, method) for method in ["PUT"] * 24 + ["GET"] * 8]:
            done.result()
    get, put = (statistics.median(waits[method]) for method in ("GET", "PUT"))
    check(get < put / 2, f"GET {get:.3f} s, PUT {put:.3f} s")
    check(stage.slow.most <= 4, f"{stage.slow.most} at a time")
    check(len(waits["PUT"]) >= 24, f"{len(waits['PUT'])} PUTs")
    say(
        f"saturated: {len(waits['GET'])} GETs took {get * 1000:.0f} ms (median), {len(waits['PUT'])} PUTs {put * 1000:.0f} ms, "
        f"never more than {stage.slow.most} at the server"
    )


def main():
    read = argparse.ArgumentParser()
    read.add_argument("towpath")
    read.add_argument("--server")
    args = read.parse_args()
    with tempfile.TemporaryDirectory(prefix="towpath-s3-") as folder:
        stage = None
        try:
            stage = Stage(args.towpath, args.server, folder)
            say(f"gateway and server ({stage.server}) are up")
            objects(stage)
            transfer(stage, "boto3", 104 * MIB)
            presigned(stage)
            identities(stage)
            virtual_hosts(stage)
            switches(stage)
            command_line(stage)
            saturation(stage)
        except BaseException:
            for log in Path(folder).glob("*.log"):
                sys.stderr.write(f"--- {log.name}\n" + "".join(log.read_text(errors="replace").splitlines(True)[-20:]))
            raise
        finally:
            if stage:
                stage.end()
    say("all shown")


main()
