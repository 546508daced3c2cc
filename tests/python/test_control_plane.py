"""What torch's worker server answers about this process."""

import http.client
import json
import os
import pickle
import socket

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _WorkerServer

import hccl_like
from ranks import run_ranks


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=20)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(self.path)


def ask(path, handler, query=""):
    connection = UnixConnection(path)
    connection.request("POST", f"/handler/{handler}{query}")
    response = connection.getresponse()
    body = response.read()
    connection.close()
    assert response.status == 200, body
    return response.getheader("Content-Type"), body


def answers(rank, size, folder):
    path = os.path.join(folder, f"rank{rank}.sock")
    server = _WorkerServer(path)
    pair = dist.new_group(group_desc="a pair")
    dist.all_reduce(torch.ones(3), group=pair)
    if rank == 0:
        work = dist.all_reduce(torch.ones(7), async_op=True)
        kind, body = ask(path, "hccl_like_status")
        assert kind == "application/json"
        status = json.loads(body)
        assert status["pid"] == os.getpid()
        world, other = sorted(status["groups"], key=lambda group: group["name"])
        assert (world["name"], world["description"]) == ("0", "default_pg")
        assert (world["rank"], world["size"], world["global_ranks"]) == (0, 2, [0, 1])
        assert world["failure"] is None
        (call,) = world["running"]
        assert (call["name"], call["number"]) == ("all_reduce", 1)
        assert (other["description"], other["running"], other["sequence"]) == ("a pair", [], 1)
        kind, body = ask(path, "hccl_like_fr_trace_json", "?onlyactive=true")
        assert kind == "application/json"
        assert [entry["input_sizes"] for entry in json.loads(body)["entries"]] == [[[7]]]
        dist.send(torch.ones(1), 1)
        work.wait()
    else:
        dist.recv(torch.ones(1), 0)
        dist.all_reduce(torch.ones(7))
    kind, body = ask(path, "hccl_like_fr_trace")
    assert kind == "application/octet-stream"
    assert [entry["profiling_name"] for entry in pickle.loads(body)["entries"]] == [
        "hccl:all_reduce",
        "hccl:all_reduce" if rank == 0 else "hccl:recv 1<-0",
        "hccl:send 0->1" if rank == 0 else "hccl:all_reduce",
    ]
    _, body = ask(path, "hccl_like_fr_trace", "?includecollectives=false")
    assert "entries" not in pickle.loads(body)
    dist.destroy_process_group()
    _, body = ask(path, "hccl_like_status")
    assert json.loads(body)["groups"] == []
    server.shutdown()


def test_the_worker_server_tells_of_groups_and_calls(tmp_path):
    assert hccl_like.dump_flight_recorder  # the extension registers the handlers when it is loaded
    run_ranks(answers, 2, str(tmp_path))
