"""A small server of a language model: Llama with random weights, batches, a cache of keys and values, a CUDA graph for each token.

    serve.py [--port 8001] [--workers 2] [--plant wait,loop,leak]

The first process answers HTTP (`POST /`, the body is the prompt) and never touches the GPU. Each worker is a process with a model of its own, which
takes as many requests as are there. `--plant` adds faults that servers really have, for a tracer to find:

    wait    the host asks after every token whether all sequences have ended
    loop    a penalty for repeated words is computed sequence by sequence
    leak    scores of every token are kept for a log that nobody reads
"""
import argparse
import http.server
import multiprocessing
import queue
import threading
import time

BATCH = 16
PROMPT_TOKENS = 64
NEW_TOKENS = 64
VOCABULARY = 32000
END = 2
PATIENCE = 0.01  # seconds


class Engine:
    """Answers a batch of prompts."""

    def __init__(self, faults):
        import torch
        import transformers

        self.torch = torch
        self.faults = faults
        torch.manual_seed(1)
        config = transformers.LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=1024, intermediate_size=2816, num_hidden_layers=2, num_attention_heads=16,
            num_key_value_heads=4, max_position_embeddings=PROMPT_TOKENS + NEW_TOKENS + 1,
        )
        self.model = transformers.LlamaForCausalLM(config).to("cuda", torch.bfloat16).eval()
        self.cache = transformers.StaticCache(config=config, max_cache_len=PROMPT_TOKENS + NEW_TOKENS + 1)
        self.tokens = torch.zeros((BATCH, 1), dtype=torch.long, device="cuda")
        self.answer = torch.zeros((BATCH, NEW_TOKENS), dtype=torch.long, device="cuda")
        self.log = []
        self.graph = self.capture()

    def forward(self, tokens):
        """The scores of the next token of each sequence."""
        return self.model(tokens, past_key_values=self.cache, use_cache=True).logits[:, -1].float()

    def capture(self):
        """A graph of one step for the whole batch: one launch instead of hundreds."""
        torch = self.torch
        stream = torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.stream(stream):
            self.forward(torch.zeros((BATCH, PROMPT_TOKENS), dtype=torch.long, device="cuda"))
            for _ in range(2):
                self.forward(self.tokens)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            self.scores = self.forward(self.tokens)
        return graph

    def generate(self, prompts):
        """Tokens that follow each prompt, a tensor of BATCH x NEW_TOKENS on the host."""
        torch = self.torch
        with torch.no_grad():
            self.cache.reset()
            scores = self.forward(torch.tensor(prompts).cuda())
            for step in range(NEW_TOKENS):
                if "loop" in self.faults and step > 0:
                    for row in range(BATCH):
                        scores[row, self.answer[row, :step]] -= 1.5  # PLANTED: loop
                self.tokens.copy_(scores.argmax(dim=-1, keepdim=True))
                self.answer[:, step : step + 1] = self.tokens
                if "leak" in self.faults:
                    self.log.append(scores[:, :1024].clone())  # PLANTED: leak
                if "wait" in self.faults and bool((self.tokens == END).all()):  # PLANTED: wait
                    break
                self.graph.replay()
                scores = self.scores
            return self.answer.cpu()


def batches(requests):
    """Lists of requests as they come: up to BATCH that come within PATIENCE of the first."""
    while True:
        batch = [requests.get()]
        until = time.monotonic() + PATIENCE
        try:
            while len(batch) < BATCH:
                batch.append(requests.get(timeout=max(0, until - time.monotonic())))
        except queue.Empty:
            pass
        yield batch


def work(requests, answers, faults, ready):
    engine = Engine(faults)
    engine.generate([[0] * PROMPT_TOKENS] * BATCH)
    ready.release()
    for batch in batches(requests):
        prompts = [tokens for _, tokens in batch]
        prompts += [[0] * PROMPT_TOKENS] * (BATCH - len(prompts))
        answer = engine.generate(prompts)
        for row, (number, _) in enumerate(batch):
            answers.put((number, answer[row].tolist()))


def encode(text):
    """A prompt as tokens: its bytes."""
    tokens = [3 + byte for byte in text[:PROMPT_TOKENS]]
    return [0] * (PROMPT_TOKENS - len(tokens)) + tokens


class Front:
    """Gives requests to the workers, and their answers to whoever waits."""

    def __init__(self, workers, faults):
        processes = multiprocessing.get_context("spawn")
        self.requests, self.answers = processes.Queue(), processes.Queue()
        self.waiting, self.next, self.lock = {}, 0, threading.Lock()
        ready = processes.Semaphore(0)
        arguments = (self.requests, self.answers, faults, ready)
        self.workers = [processes.Process(target=work, args=arguments, daemon=True) for _ in range(workers)]
        for worker in self.workers:
            worker.start()
        for _ in self.workers:
            ready.acquire()
        threading.Thread(target=self.deliver, daemon=True).start()

    def ask(self, text):
        arrived, box = threading.Event(), []
        with self.lock:
            number, self.next = self.next, self.next + 1
            self.waiting[number] = (arrived, box)
        self.requests.put((number, encode(text)))
        arrived.wait()
        return box[0]

    def deliver(self):
        while True:
            number, tokens = self.answers.get()
            with self.lock:
                arrived, box = self.waiting.pop(number)
            box.append(tokens)
            arrived.set()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--plant", default="")
    options = parser.parse_args()
    front = Front(options.workers, set(options.plant.split(",")))

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            tokens = front.ask(self.rfile.read(int(self.headers["Content-Length"])))
            body = " ".join(map(str, tokens)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    print("ready: workers %s" % " ".join(str(worker.pid) for worker in front.workers), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
