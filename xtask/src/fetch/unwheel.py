"""Unpacks members of a wheel: argv is the wheel, the destination, and a JSON list of {from, only, to}."""
import fnmatch
import json
import os
import shutil
import sys
import zipfile

wheel, destination, rules = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
os.umask(0o022)  # a plugin host refuses libraries that others can write
with zipfile.ZipFile(wheel) as archive:
    names = [name for name in archive.namelist() if not name.endswith("/")]
    for rule in rules:
        rests = [name[len(rule["from"]):] for name in names if name.startswith(rule["from"])]
        rests = [rest for rest in rests if fnmatch.fnmatchcase(rest, rule["only"])]
        if not rests:
            sys.exit(f"no member {rule['from']}{rule['only']} in {os.path.basename(wheel)}")
        for rest in rests:
            path = os.path.join(destination, rule["to"], rest)
            if not os.path.realpath(path).startswith(os.path.realpath(destination) + os.sep):
                sys.exit(f"member {rest} would land outside the destination")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with archive.open(rule["from"] + rest) as source, open(path, "wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
