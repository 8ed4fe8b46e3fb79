"""A real store for the tests of storage-s3: Ceph's radosgw from tests/s3/rgw, one directory, one bucket for each test."""
import contextlib
import os
import signal
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SKIP_EXIT = 77


class NotHere(Exception):
    pass


class Store:
    def __init__(self, kind="memstore"):
        self.dir = tempfile.mkdtemp(prefix="hf-s3-")
        self.rgw = os.path.join(self.dir, "rgw")
        done = subprocess.run([os.path.join(HERE, "rgw"), "up", self.rgw, kind], text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if done.returncode != 0:
            self.down()
            raise (NotHere if done.returncode == SKIP_EXIT else RuntimeError)(done.stderr.strip())
        self.facts = dict(line.split("=", 1) for line in done.stdout.split())
        self.endpoint = self.facts["S3_ENDPOINT"]
        self.credentials = os.path.join(self.dir, "credentials")
        with open(self.credentials, "w", encoding="ascii") as file:
            file.write(f"[default]\naws_access_key_id = {self.facts['S3_ACCESS_KEY']}\n"
                       f"aws_secret_access_key = {self.facts['S3_SECRET_KEY']}\n")
        os.chmod(self.credentials, 0o600)

    def down(self):
        subprocess.run([os.path.join(HERE, "rgw"), "down", self.rgw], stdin=subprocess.DEVNULL, check=False)
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self.dir, "credentials"))
        with contextlib.suppress(OSError):
            os.rmdir(self.dir)

    def make_bucket(self, name):
        # After a kill of radosgw the next one waits for the dead one to be told of it: up to half a minute.
        code = subprocess.run(
            ["curl", "-q", "-s", "--noproxy", "*", "-m", "60", "-X", "PUT", "-o", os.devnull, "-w", "%{http_code}",
             "--aws-sigv4", f"aws:amz:{self.facts['S3_REGION']}:s3",
             "-u", self.facts["S3_ACCESS_KEY"] + ":" + self.facts["S3_SECRET_KEY"],
             "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD", f"{self.endpoint}/{name}"],
            text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True).stdout
        if code != "200":
            raise RuntimeError(f"the bucket {name} was not made: {code}")
        return name

    def kill_rgw(self):
        with open(os.path.join(self.rgw, "out", "client.rgw.pid"), encoding="ascii") as file:
            os.kill(int(file.read()), signal.SIGKILL)

    def start_rgw(self):
        subprocess.run([os.path.join(HERE, "rgw"), "rgw", self.rgw], stdin=subprocess.DEVNULL, check=True)
