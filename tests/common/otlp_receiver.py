"""An OpenTelemetry receiver made of OpenTelemetry's own Python packages: gRPC and HTTP, protobuf and JSON.

Usage: otlp_receiver.py OUT [REFUSALS [CERTIFICATE KEY [CLIENTS]]]

Prints the ports of gRPC and HTTP, then writes a JSON line for each request to OUT. The first REFUSALS requests of each kind are
answered with "unavailable", as a receiver does that is overloaded. With a certificate both ports speak TLS, and with certificates of
clients nobody else may connect. OTLP_GRPC_PORT and OTLP_HTTP_PORT are the ports, if they are to be
certain ones.
"""

import gzip
import json
import os
import ssl
import sys
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as traces_grpc

OUT = open(sys.argv[1], "a", buffering=1)
LOCK = threading.Lock()
REFUSALS = {"traces": int(sys.argv[2]) if len(sys.argv) > 2 else 0}
REFUSALS["metrics"] = REFUSALS["traces"]


def refuses(signal):
    with LOCK:
        REFUSALS[signal] -= 1
        return REFUSALS[signal] >= 0


def write(signal, way, body, headers):
    line = {"signal": signal, "way": way, "body": body, "headers": headers}
    with LOCK:
        OUT.write(json.dumps(line) + "\n")


class Service:
    def __init__(self, signal, answer):
        self.signal, self.answer = signal, answer

    def Export(self, request, context):
        if refuses(self.signal):
            context.abort(grpc.StatusCode.UNAVAILABLE, "overloaded")
        headers = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
        write(self.signal, "grpc", MessageToDict(request), headers)
        return self.answer()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers["content-encoding"] == "gzip":
            body = gzip.decompress(body)
        kinds = {
            "/v1/traces": ("traces", traces.ExportTraceServiceRequest, traces.ExportTraceServiceResponse),
            "/v1/metrics": ("metrics", metrics.ExportMetricsServiceRequest, metrics.ExportMetricsServiceResponse),
        }
        signal, request, answer = kinds[self.path]
        if refuses(signal):
            return self.reply(503, b"overloaded", "text/plain")
        if self.headers["content-type"] == "application/json":
            # Not through protobuf's own JSON, in which ids are base64: as it came.
            write(signal, "http/json", json.loads(body), dict(self.headers))
            return self.reply(200, b"{}", "application/json")
        message = MessageToDict(request.FromString(body))
        write(signal, "http/protobuf", message, dict(self.headers))
        self.reply(200, answer().SerializeToString(), "application/x-protobuf")

    def reply(self, status, body, content):
        self.send_response(status)
        self.send_header("content-type", content)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = grpc.server(futures.ThreadPoolExecutor(4))
traces_grpc.add_TraceServiceServicer_to_server(Service("traces", traces.ExportTraceServiceResponse), server)
metrics_grpc.add_MetricsServiceServicer_to_server(Service("metrics", metrics.ExportMetricsServiceResponse), server)
web = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("OTLP_HTTP_PORT", "0"))), Handler)
if len(sys.argv) > 4:
    certificate, key = (open(path, "rb").read() for path in sys.argv[3:5])
    clients = open(sys.argv[5], "rb").read() if len(sys.argv) > 5 else None
    credentials = grpc.ssl_server_credentials([(key, certificate)], clients, clients is not None)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*sys.argv[3:5])
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(sys.argv[5])
    web.socket = context.wrap_socket(web.socket, server_side=True)
else:
    port = server.add_insecure_port("127.0.0.1:" + os.environ.get("OTLP_GRPC_PORT", "0"))
server.start()
print(port, web.server_port, flush=True)
web.serve_forever()
