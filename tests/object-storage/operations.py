#!/usr/bin/env python3
"""Facts of S3's operations from botocore's model of the service, one JSON object a line. Without --check they are printed; with
--check FILE they are compared with a file that holds them (crates/s3/tests/operations.jsonl, which cargo's tests read)."""
import gzip
import json
import sys
from pathlib import Path

import botocore


def facts():
    folder = sorted((Path(botocore.__file__).parent / "data/s3").iterdir())[-1]
    packed = folder / "service-2.json.gz"
    text = gzip.open(packed).read() if packed.exists() else (folder / "service-2.json").read_bytes()
    model = json.loads(text)
    for name, operation in sorted(model["operations"].items()):
        shape = model["shapes"].get(operation.get("input", {}).get("shape"), {})
        required = [shape["members"][member] for member in shape.get("required", [])]
        named = {
            place: [member["locationName"] for member in required if member.get("location") == place]
            for place in ("querystring", "header")
        }
        http = operation["http"]
        yield {"name": name, "method": http["method"], "uri": http["requestUri"], "query": named["querystring"], "headers": named["header"]}


def main():
    lines = [json.dumps(fact) for fact in facts()]
    if sys.argv[1:2] != ["--check"]:
        print("\n".join(lines))
        return
    known = Path(sys.argv[2]).read_text().splitlines()
    for line in sorted(set(lines) - set(known)):
        print(f"botocore {botocore.__version__} says, and {sys.argv[2]} does not: {line}")
    for line in sorted(set(known) - set(lines)):
        print(f"{sys.argv[2]} says, and botocore {botocore.__version__} does not: {line}")
    if set(lines) != set(known):
        sys.exit(1)
    print(f"{len(lines)} operations as botocore {botocore.__version__} describes them")


main()
