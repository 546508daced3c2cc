"""Algorithms as a user would write them, for the tests of hccl_like.schedule."""

from hccl_like import schedule
from hccl_like.schedule import Schedule, copy, in_, out, recv, recv_reduce, reduce, send


@schedule.algorithm("all_reduce")
def my_ring(rank, size):
    made = Schedule(chunks=size)
    right, left = (rank + 1) % size, (rank - 1) % size
    for i in range(size - 1):
        give, take = (rank - i) % size, (rank - i - 1) % size
        made.round(send(right, out[give] if i else in_[give]), recv_reduce(left, in_[take], out[take]))
    for i in range(size - 1):
        give, take = (rank + 1 - i) % size, (rank - i) % size
        made.round(send(right, out[give]), recv(left, out[take]))
    return made


@schedule.algorithm("all_reduce")
def my_gathered(rank, size):
    """Each rank gets all inputs in scratch memory and adds them up at once."""
    made = Schedule(chunks=1)
    others = [peer for peer in range(size) if peer != rank]
    got = {peer: made.scratch(in_[0]) for peer in others}
    made.round(*(send(peer, in_[0]) for peer in others), *(recv(peer, got[peer]) for peer in others))
    made.round(reduce([got.get(peer, in_[0]) for peer in range(size)], out[0]))
    return made


@schedule.algorithm("reduce_scatter")
def my_scatter(rank, size):
    made = Schedule(chunks=size)
    others = [peer for peer in range(size) if peer != rank]
    got = {peer: made.scratch(in_[rank]) for peer in others}
    made.round(*(send(peer, in_[peer]) for peer in others), *(recv(peer, got[peer]) for peer in others))
    made.round(reduce([got.get(peer, in_[rank]) for peer in range(size)], out[rank]))
    return made


@schedule.algorithm("all_gather")
def my_gather(rank, size):
    made = Schedule(chunks=size)
    made.round(copy(in_[rank], out[rank]), send((rank + 1) % size, in_[rank]), recv((rank - 1) % size, out[(rank - 1) % size]))
    for i in range(1, size - 1):
        made.round(send((rank + 1) % size, out[(rank - i) % size]), recv((rank - 1) % size, out[(rank - i - 1) % size]))
    return made


@schedule.algorithm("broadcast")
def my_star(rank, size, root):
    made = Schedule(chunks=2)
    if rank == root:
        made.round(copy(in_[0:2], out[0:2]), *(send(peer, in_[0:2]) for peer in range(size) if peer != root))
    else:
        made.round(recv(root, out[0:2]))
    return made


@schedule.algorithm("reduce")
def my_line(rank, size, root):
    """From the rank before the root backwards around the ring to the root."""
    made = Schedule(chunks=1)
    place = (rank - root) % size
    inner = made.scratch(in_[0])
    for i in range(size - 1, 0, -1):
        to = out[0] if place == 0 else inner
        mine = in_[0]
        if place == i:
            made.round(send((rank - 1) % size, mine if i == size - 1 else inner))
        elif place == i - 1:
            made.round(recv_reduce((rank + 1) % size, mine, to))
        else:
            made.round()
    return made


@schedule.algorithm("all_to_all")
def my_exchange(rank, size):
    made = Schedule(chunks=size)
    made.round(copy(in_[rank], out[rank]))
    for i in range(1, size):
        made.round(send((rank + i) % size, in_[(rank + i) % size]), recv((rank - i) % size, out[(rank - i) % size]))
    return made


ALL = [my_ring, my_gathered, my_scatter, my_gather, my_star, my_line, my_exchange]
EVERYWHERE = ";".join(f"{one.collective}:{one.name}" for one in ALL if one is not my_gathered)
