"""Asks the server all the time, and prints each second how many tokens came back: load.py [--port 8001] [--clients 32] [--seconds 10]

The last line is the mean of all seconds but the first.
"""
import argparse
import http.client
import threading
import time


def client(port, number, counts, until):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    asked = 0
    try:
        while time.monotonic() < until:
            connection.request("POST", "/", "client %d asks for the %dth time" % (number, asked))
            answer = connection.getresponse().read()
            asked += 1
            counts[number] += len(answer.split())
    except (OSError, http.client.HTTPException):
        pass  # The server has ended.


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=int, default=10)
    options = parser.parse_args()
    counts = [0] * options.clients
    begin = time.monotonic()
    for number in range(options.clients):
        threading.Thread(target=client, args=(options.port, number, counts, begin + options.seconds), daemon=True).start()
    rates = []
    seen = 0
    for second in range(1, options.seconds + 1):
        time.sleep(max(0, begin + second - time.monotonic()))
        total = sum(counts)
        rates.append(total - seen)
        seen = total
        print("%3d s  %6d tokens/s" % (second, rates[-1]), flush=True)
    later = rates[1:] or rates
    print("mean   %6d tokens/s" % (sum(later) / len(later)), flush=True)


main()
