"""A real broker that lets clients in by certificate and by SASL over TLS, beside its listener without either."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from streamapp.broker import ports

from .brokers import SteadyKafka, read_settings, set_settings

__all__ = ["PASSWORD", "USER", "SecuredKafka", "token_endpoint"]

USER, PASSWORD = "ada", "planted-s3cret"
KEY_PASSWORD = "planted-k3y-secret"
_MODULES = "org.apache.kafka.common.security"
_NEW_KEY = "-newkey ec -pkeyopt ec_paramgen_curve:P-256"
"""Java without its optimising compiler takes 12 ms for a signature with RSA, at each connection, and 1 ms with this."""


class SecuredKafka(SteadyKafka):
    """``environment(kind)`` are the variables of a client: ``SSL``, or a mechanism of SASL."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "kafka", brokers=1, port=0)
        self._pem = folder / "pem"
        self._tls, self._sasl = ports.free_port(), ports.free_port()
        make_certificates(self._pem)

    def _write_cluster(self, cluster: Any) -> None:
        super()._write_cluster(cluster)
        known = read_settings(self, 1)
        more = f",TLS://127.0.0.1:{self._tls},LOGIN://127.0.0.1:{self._sasl}"
        known["listeners"] += more
        known["advertised.listeners"] += more
        known["listener.security.protocol.map"] += ",TLS:SSL,LOGIN:SASL_SSL"
        login = "listener.name.login."
        known |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._pem / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._pem / "ca.pem"),
            "listener.name.tls.ssl.client.auth": "required",
            f"{login}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            f"{login}plain.sasl.jaas.config": f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
            f"{login}scram-sha-256.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
            f"{login}scram-sha-512.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
            f"{login}oauthbearer.sasl.jaas.config": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="broker";',
            f"{login}oauthbearer.sasl.server.callback.handler.class": f"{_MODULES}.oauthbearer.internals.unsecured."
            "OAuthBearerUnsecuredValidatorCallbackHandler",
        }
        set_settings(self, 1, known)

    def trust(self, new: Path) -> None:
        """Starts the broker anew, so that certificates of the authority in ``new`` are let in, too."""
        self.stop_broker(1)
        with (self._pem / "ca.pem").open("a") as trusted:
            trusted.write((new / "ca.pem").read_text())
        self.start_broker(1)

    def replace_authority(self, new: Path) -> None:
        """Starts the broker anew with a certificate of the authority in ``new``, and lets no certificate of the old one in."""
        self.stop_broker(1)
        for name in ("broker.pem", "ca.pem"):
            shutil.copy(new / name, self._pem / name)
        self.start_broker(1)

    @property
    def pem(self) -> Path:
        return self._pem

    def add_user(self) -> None:
        """The user of SCRAM, whose password brokers keep."""
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            credential = ScramCredentialInfo(mechanism, 4096)
            change = UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())
            admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
            for future in admin.alter_user_scram_credentials([change]).values():
                future.result()

    def environment(self, kind: str, endpoint: str = "") -> dict[str, str]:
        found = {"SSL_CA_LOCATION": str(self._pem / "ca.pem")}
        if kind == "SSL":
            found |= {
                "BOOTSTRAP_SERVERS": f"127.0.0.1:{self._tls}",
                "SECURITY_PROTOCOL": "SSL",
                "SSL_CERTIFICATE_LOCATION": str(self._pem / "client.crt"),
                "SSL_KEY_LOCATION": str(self._pem / "client.key"),
                "SSL_KEY_PASSWORD": KEY_PASSWORD,
            }
        else:
            found |= {
                "BOOTSTRAP_SERVERS": f"127.0.0.1:{self._sasl}",
                "SECURITY_PROTOCOL": "SASL_SSL",
                "SASL_MECHANISM": kind,
            }
            if kind == "OAUTHBEARER":
                found |= {
                    "SASL_OAUTHBEARER_CLIENT_ID": USER,
                    "SASL_OAUTHBEARER_CLIENT_SECRET": PASSWORD,
                    "SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL": endpoint,
                }
            else:
                found |= {"SASL_USERNAME": USER, "SASL_PASSWORD": PASSWORD}
        return {f"STREAMAPP_{name}": value for name, value in found.items()}


@contextmanager
def token_endpoint() -> Iterator[str]:
    """The address of an OAuth server that gives tokens, not signed, to who has the password."""
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            allowed = self.headers.get("Authorization") == f"Basic {login}"
            answer = json.dumps({"access_token": _token(), "expires_in": 3600} if allowed else {}).encode()
            self.send_response(200 if allowed else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/token"
        server.shutdown()


def _token() -> str:
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": USER, "iat": now, "exp": now + 3600, "scope": "kafka"})
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*texts, ""])


def make_certificates(folder: Path) -> None:
    """An authority (``ca.pem``), the broker's certificate with its key, and a client's, whose key has a password."""
    folder.mkdir(parents=True)

    def openssl(arguments: str, *more: str) -> None:
        subprocess.run(["openssl", *arguments.split(), *more], cwd=folder, check=True, capture_output=True)

    name = f"authority-{uuid.uuid4().hex[:8]}"  # two of one name would be mixed up
    openssl(
        f"req -x509 {_NEW_KEY} -nodes -days 2 -subj /CN={name} -keyout ca.key -out ca.pem",
        *("-addext", "keyUsage=critical,keyCertSign"),  # Python 3.13 refuses an authority without
    )
    identifiers = "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
    (folder / "client.ext").write_text(identifiers)
    (folder / "broker.ext").write_text(f"{identifiers}subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for name in ("broker", "client"):
        openssl(f"req {_NEW_KEY} -nodes -subj /CN={name} -keyout {name}.raw -out {name}.csr")
        signing = f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out {name}.crt"
        openssl(signing, "-extfile", f"{name}.ext")
    openssl("pkcs8 -topk8 -in client.raw -out client.key", "-passout", f"pass:{KEY_PASSWORD}")
    (folder / "broker.pem").write_text(
        (folder / "broker.raw").read_text() + (folder / "broker.crt").read_text()
    )
