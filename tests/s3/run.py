#!/usr/bin/python3
"""storage-s3 against a real store: the storage contract directly and through a proxy full of faults, starts that must be
refused, and a node that serves while everything is killed. Prints a line for each test and writes the counts for the caller.

usage: run.py [--build DIR] [--results FILE] [--seed N] [PATTERN...]
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import time
import traceback
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "tests", "system")]


def conformance(build, store, settings, *more):
    """Runs the contract against the plugin's binary; (exit code, what it said)."""
    known = {"endpoint": store.endpoint, "access_key_id": store.facts["S3_ACCESS_KEY"],
             "secret_access_key": store.facts["S3_SECRET_KEY"], **settings}
    command = [os.path.join(build, "tests", "conformance", "storage_conformance"),
               "--plugin", os.path.join(build, "plugins", "storage-s3", "storage-s3"), "--trait", "restart", *more]
    for key, value in known.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=600, check=False)   # minutes on a busy machine
    return done.returncode, done.stdout


class Contract(unittest.TestCase):
    build = seed = store = None

    def held(self, settings, *more):
        code, said = conformance(self.build, self.store, settings, *more)
        self.assertEqual(code, 0, said[:6000])
        self.assertNotIn("FAILED", said)
        return said

    def refused(self, settings, *parts):
        code, said = conformance(self.build, self.store, settings, "--case", "put_is_read_back")
        self.assertEqual(code, 2, said)
        for part in parts:
            self.assertIn(part, said)

    def test_the_contract_holds(self):
        said = self.held({"bucket": self.store.make_bucket("contract")})
        self.assertGreater(said.count(" ok"), 20, said)

    def test_the_contract_holds_below_a_prefix(self):
        code, said = conformance(self.build, self.store, {"bucket": self.store.make_bucket("prefixed"), "prefix": "a/b-c/"})
        failed = [line.split()[0] for line in said.splitlines() if "FAILED" in line]
        # Keys end at 1024 bytes, the prefix included.
        self.assertLessEqual(set(failed), {"keys_up_to_the_limit", "long_common_prefixes", "a_page_of_long_keys_fits_a_reply"}, said)
        self.assertEqual(code, 1, said)

    def test_the_contract_holds_through_faults(self):
        import proxy
        made = {}
        for seed in range(self.seed, self.seed + 2):
            between = proxy.Proxy(self.store.endpoint, seed)
            try:
                # No budget of tries: each outcome must be found out, and be the right one.
                _, said = conformance(self.build, self.store, {
                    "bucket": self.store.make_bucket(f"faults-{seed}"), "endpoint": between.endpoint,
                    "attempts_max": "100", "operation_timeout": "15000"})
                failed = {line.split()[0] for line in said.splitlines() if "FAILED" in line}
                # A conditional write without an id cannot be told from a stranger's once an answer is lost: it is unknown.
                self.assertLessEqual(failed, {"no_write_id_is_never_the_same"}, f"seed {seed}: {said[:6000]}")
            finally:
                between.close()
            for fault, times in between.made.items():
                made[fault] = made.get(fault, 0) + times
            self.assertGreater(said.count(" ok"), 20)
        self.assertEqual(set(made), set(proxy.FAULTS), "each fault was met")

    def test_tls_believes_the_given_certificate_and_no_other(self):
        import proxy
        import ssl
        import tempfile
        with tempfile.TemporaryDirectory(prefix="hf-s3-") as directory:
            files = {}
            for name in ("one", "other"):
                files[name] = os.path.join(directory, name + ".pem")
                subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test",
                                "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", files[name] + ".key", "-out", files[name]],
                               stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(files["one"], files["one"] + ".key")
            between = proxy.Proxy(self.store.endpoint, 1, share=0, tls=context)
            try:
                settings = {"bucket": self.store.make_bucket("tls"), "endpoint": between.endpoint, "operation_timeout": "5000"}
                self.held({**settings, "ca_file": files["one"]}, "--case", "put_is_read_back")
                code, said = conformance(self.build, self.store, {**settings, "ca_file": files["other"]}, "--case", "put_is_read_back")
                self.assertEqual(code, 1, said)   # it starts and waits: whose certificate is wrong may be put right
                self.assertIn("FAILED", said)
            finally:
                between.close()

    def test_a_bucket_that_is_not_there_refuses_the_start(self):
        self.refused({"bucket": "not-there"}, "NoSuchBucket", "plugin.storage.bucket")

    def test_wrong_keys_refuse_the_start(self):
        bucket = self.store.make_bucket("wrong-keys")
        self.refused({"bucket": bucket, "secret_access_key": "other"}, "SignatureDoesNotMatch", "credentials_file")
        self.refused({"bucket": bucket, "access_key_id": "nobody"}, "InvalidAccessKeyId", "credentials_file")

    def test_the_quoted_form_is_refused_where_only_the_bare_one_works(self):
        bucket = self.store.make_bucket("forms")
        self.refused({"bucket": bucket, "etag_form": "quoted"}, "etag_form")
        self.held({"bucket": bucket, "etag_form": "bare"}, "--case", "if_match_takes_the_present_etag_only")


def flatten(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flatten(item)
        else:
            yield item


def run_one(test, counts):
    start = time.monotonic()
    result = unittest.TestResult()
    try:
        test.run(result)
    except Exception:  # pylint: disable=broad-except
        result.addError(test, sys.exc_info())
        traceback.print_exc()
    seconds = time.monotonic() - start
    name = test.id().removeprefix("__main__.")
    if result.failures or result.errors:
        counts["failed"] += 1
        print(f"FAILED {name} ({seconds:.1f} s)")
        for _, text in result.failures + result.errors:
            print("    " + text.replace("\n", "\n    "))
    else:
        counts["passed"] += 1
        print(f"ok {name} ({seconds:.1f} s)")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--results")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("patterns", nargs="*")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))   # the store is ended then as well
    os.environ["HOLDFAST_TEST_BIN"] = os.path.abspath(os.path.join(options.build, "bin"))
    import store
    import test_node
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    try:
        server = store.Store()   # its objects outlive radosgw, the one part that is killed here
    except store.NotHere as error:
        print(f"skipped: {error}")
        counts["skipped"] = 1
    else:
        try:
            Contract.build, Contract.seed, Contract.store = os.path.abspath(options.build), options.seed, server
            test_node.OnS3.store = server
            loader = unittest.defaultTestLoader
            for test in flatten(unittest.TestSuite([loader.loadTestsFromTestCase(Contract),
                                                    loader.loadTestsFromTestCase(test_node.OnS3)])):
                if not options.patterns or any(p in test.id() for p in options.patterns):
                    run_one(test, counts)
        finally:
            server.down()
    if options.results:
        with open(options.results, "w", encoding="utf-8") as file:
            json.dump(counts, file)
    print(f"s3: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
