#!/usr/bin/python3
"""The seed corpora: one archive for each harness, tests/fuzz/corpus/fuzz_NAME_seed_corpus.zip, as OSS-Fuzz keeps them. The build unpacks them.

    corpus.py add NAME PATH…      add files, or the files of folders, to an archive
    corpus.py pack NAME FOLDER    make the archive anew from all files of FOLDER

An input that made a harness fail, or that reaches new code, belongs here: `make corpus` adds what `make fuzz` found. The same inputs give the same
archive on every machine: sorted, without times and owners, and stored rather than deflated, so that git finds what two versions have in common.
"""
import hashlib
import os
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))


def archive(name):
    if not os.path.exists(os.path.join(HERE, "fuzz_%s.c" % name)):
        sys.exit("corpus.py: there is no harness tests/fuzz/fuzz_%s.c" % name)
    return os.path.join(HERE, "corpus", "fuzz_%s_seed_corpus.zip" % name)


def files_of(paths):
    for path in paths:
        if os.path.isdir(path):
            yield from (os.path.join(path, n) for n in sorted(os.listdir(path)))
        else:
            yield path


def read_archive(path):
    if not os.path.exists(path):
        return {}
    with zipfile.ZipFile(path) as z:
        return {n: z.read(n) for n in z.namelist()}


def read_files(paths):
    """name → bytes; the name is the hash of the contents where libFuzzer gave the input another one (crash-…, leak-…)."""
    out = {}
    for path in files_of(paths):
        with open(path, "rb") as f:
            data = f.read()
        name = os.path.basename(path)
        out[hashlib.sha1(data).hexdigest() if "-" in name and name.split("-")[0] in ("crash", "leak", "oom", "timeout", "slow") else name] = data
    return out


def write_archive(path, inputs):
    with zipfile.ZipFile(path + ".new", "w", zipfile.ZIP_STORED) as z:
        for name in sorted(inputs):
            info = zipfile.ZipInfo(name)  # 1980, the first time a zip can hold
            info.external_attr = 0o100644 << 16
            info.create_system = 3
            z.writestr(info, inputs[name])
    os.replace(path + ".new", path)


def main(argv):
    if len(argv) < 3 or argv[0] not in ("add", "pack") or (argv[0] == "pack" and len(argv) != 3):
        print(__doc__)
        return 2
    verb, name, *paths = argv
    path = archive(name)
    before = read_archive(path)
    inputs = {} if verb == "pack" else dict(before)
    known = set(inputs.values())
    inputs.update({n: data for n, data in read_files(paths).items() if data not in known})
    if not inputs:
        sys.exit("corpus.py: no input in %s" % " ".join(paths))
    write_archive(path, inputs)
    print("%s: %d inputs, %d before" % (os.path.relpath(path), len(inputs), len(before)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
