// mpi_serve FOLDER: measures an MPI library (see serve.h). Compiled once against each.
//
// bfloat16: the library's own type where it has one (MPICH and Intel MPI, as extensions); else
// uint16 with an operation of ours, which is as fast as the compiler makes it. Transfers don't
// care: they move uint16.
#include <mpi.h>

#include <bit>
#include <cstdint>
#include <stdexcept>

#include "bench/peers/serve.h"

namespace hccl_like::bench {
namespace {

void add_bfloat16(void* in, void* inout, int* count, MPI_Datatype*) {
  const auto* a = static_cast<const uint16_t*>(in);
  auto* b = static_cast<uint16_t*>(inout);
  for (int i = 0; i < *count; ++i) {
    const float sum =
        std::bit_cast<float>(uint32_t{a[i]} << 16) + std::bit_cast<float>(uint32_t{b[i]} << 16);
    const uint32_t bits = std::bit_cast<uint32_t>(sum);
    b[i] = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
}

struct Summable {
  MPI_Datatype type;
  MPI_Op sum;
};

Summable own_bfloat16() {
  static const Summable own = [] {
    MPI_Op sum;
    MPI_Op_create(add_bfloat16, 1, &sum);
    return Summable{MPI_UINT16_T, sum};
  }();
  return own;
}

Summable summable(const std::string& type) {
  if (type == "float") return {MPI_FLOAT, MPI_SUM};
#ifdef MPIX_BFLOAT16
  return {MPIX_BFLOAT16, MPI_SUM};
#else
  return own_bfloat16();
#endif
}

std::function<void()> operation(const Request& request, const PeerBuffers& buffers, int rank,
                                int ranks) {
  const auto [type, sum] = summable(request.type);
  const MPI_Datatype moved = request.type == "float" ? MPI_FLOAT : MPI_UINT16_T;
  void* const send = buffers.send();
  void* const receive = buffers.receive();
  const int count = static_cast<int>(buffers.count());
  const std::string& name = request.collective;
  if (name == "all_reduce")
    return [=] { MPI_Allreduce(MPI_IN_PLACE, receive, count, type, sum, MPI_COMM_WORLD); };
  if (name == "reduce_scatter")
    return [=] { MPI_Reduce_scatter_block(send, receive, count, type, sum, MPI_COMM_WORLD); };
  if (name == "all_gather")
    return [=] { MPI_Allgather(send, count, moved, receive, count, moved, MPI_COMM_WORLD); };
  if (name == "alltoall")
    return [=] { MPI_Alltoall(send, count, moved, receive, count, moved, MPI_COMM_WORLD); };
  if (name == "broadcast") return [=] { MPI_Bcast(send, count, moved, 0, MPI_COMM_WORLD); };
  if (name == "barrier") return [] { MPI_Barrier(MPI_COMM_WORLD); };
  if (name == "sendrecv") {
    const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    return [=] {
      MPI_Sendrecv(send, count, moved, next, 0, receive, count, moved, before, 0, MPI_COMM_WORLD,
                   MPI_STATUS_IGNORE);
    };
  }
  throw std::invalid_argument("no such collective in this program: " + name);
}

}  // namespace
}  // namespace hccl_like::bench

int main(int argc, char** argv) {
  using namespace hccl_like::bench;
  if (argc < 2) return 2;
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  serve(argv[1], rank, ranks, [&](const Request& request, const PeerBuffers& buffers) {
    return operation(request, buffers, rank, ranks);
  });
  MPI_Finalize();
  return 0;
}
