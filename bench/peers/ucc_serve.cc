// ucc_serve FOLDER RANK RANKS: measures UCC (see serve.h). Its operations are made once a row and
// posted again each time, as its persistent collectives allow.
#include <fcntl.h>
#include <sys/mman.h>
#include <ucc/api/ucc.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

#include "bench/cpp/shared_barrier.h"
#include "bench/peers/serve.h"

namespace hccl_like::bench {
namespace {

void must(ucc_status_t status, const char* attempt) {
  if (status < 0)
    throw std::invalid_argument(std::string(attempt) + ": " + ucc_status_string(status));
}

// Exchange of UCC's bootstrap data between the ranks at start: each rank has a slot in a file.
class Exchange {
 public:
  Exchange(const std::string& folder, int rank, int ranks)
      : barrier_(SharedBarrier::in_file(folder + "/ucc_barrier")), rank_(rank), ranks_(ranks) {
    const size_t bytes = kSlot * static_cast<size_t>(ranks);
    const int file = ::open((folder + "/ucc_slots").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0)
      throw std::runtime_error("cannot write into " + folder);
    slots_ = static_cast<std::byte*>(
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    ::close(file);
  }

  ucc_oob_coll calls() {
    return {.allgather = all_gather,
            .req_test = [](void*) { return UCC_OK; },
            .req_free = [](void*) { return UCC_OK; },
            .coll_info = this,
            .n_oob_eps = static_cast<uint32_t>(ranks_),
            .oob_ep = static_cast<uint32_t>(rank_)};
  }

 private:
  static constexpr size_t kSlot = 1 << 16;

  static ucc_status_t all_gather(void* from, void* into, size_t bytes, void* self, void** request) {
    auto& exchange = *static_cast<Exchange*>(self);
    *request = self;
    if (bytes > kSlot) return UCC_ERR_NO_RESOURCE;
    const auto all = static_cast<uint32_t>(exchange.ranks_);
    std::memcpy(exchange.slots_ + kSlot * static_cast<size_t>(exchange.rank_), from, bytes);
    exchange.barrier_->wait(all);
    for (size_t rank = 0; rank < all; ++rank)
      std::memcpy(static_cast<std::byte*>(into) + rank * bytes, exchange.slots_ + kSlot * rank,
                  bytes);
    exchange.barrier_->wait(all);
    return UCC_OK;
  }

  SharedBarrier* barrier_;
  int rank_, ranks_;
  std::byte* slots_;
};

class Team {
 public:
  Team(const std::string& folder, int rank, int ranks)
      : exchange_(folder, rank, ranks), ranks_(ranks) {
    ucc_lib_config_h library_config;
    must(ucc_lib_config_read(nullptr, nullptr, &library_config), "reading its settings");
    ucc_lib_params_t library{};
    library.mask = UCC_LIB_PARAM_FIELD_THREAD_MODE;
    library.thread_mode = UCC_THREAD_SINGLE;
    must(ucc_init(&library, library_config, &library_), "initialising it");
    ucc_lib_config_release(library_config);

    ucc_context_config_h context_config;
    must(ucc_context_config_read(library_, nullptr, &context_config), "reading its settings");
    ucc_context_params_t context{};
    context.mask = UCC_CONTEXT_PARAM_FIELD_TYPE | UCC_CONTEXT_PARAM_FIELD_OOB;
    context.type = UCC_CONTEXT_SHARED;
    context.oob = exchange_.calls();
    must(ucc_context_create(library_, &context, context_config, &context_), "making a context");
    ucc_context_config_release(context_config);

    ucc_team_params_t team{};
    team.mask = UCC_TEAM_PARAM_FIELD_EP | UCC_TEAM_PARAM_FIELD_EP_RANGE | UCC_TEAM_PARAM_FIELD_OOB;
    team.ep = static_cast<uint64_t>(rank);
    team.ep_range = UCC_COLLECTIVE_EP_RANGE_CONTIG;
    team.oob = exchange_.calls();
    must(ucc_team_create_post(&context_, 1, &team, &team_), "making a team");
    while (true) {
      const ucc_status_t status = ucc_team_create_test(team_);
      must(status, "making a team");
      if (status == UCC_OK) break;
      ucc_context_progress(context_);
    }
  }

  std::function<void()> make(const Request& request, const PeerBuffers& buffers) {
    ucc_coll_args_t args = arguments(request, buffers);
    ucc_coll_req_h made = nullptr;
    must(ucc_collective_init(&args, &made, team_), "making the operation");
    const std::shared_ptr<ucc_coll_req> operation(made, ucc_collective_finalize);
    return [this, operation] {
      ucc_collective_post(operation.get());
      while (ucc_collective_test(operation.get()) == UCC_INPROGRESS) ucc_context_progress(context_);
    };
  }

 private:
  ucc_coll_args_t arguments(const Request& request, const PeerBuffers& buffers) const {
    const std::string& name = request.collective;
    ucc_coll_args_t args{};
    args.mask = UCC_COLL_ARGS_FIELD_FLAGS;
    args.flags = UCC_COLL_ARGS_FLAG_PERSISTENT;
    args.op = UCC_OP_SUM;
    const auto type = request.type == "float" ? UCC_DT_FLOAT32 : UCC_DT_BFLOAT16;
    const uint64_t one = buffers.count(), all = one * static_cast<uint64_t>(ranks_);
    args.src.info = {buffers.send(), one, type, UCC_MEMORY_TYPE_HOST};
    args.dst.info = {buffers.receive(), one, type, UCC_MEMORY_TYPE_HOST};
    if (name == "all_reduce") {
      args.coll_type = UCC_COLL_TYPE_ALLREDUCE;
      args.flags |= UCC_COLL_ARGS_FLAG_IN_PLACE;
    } else if (name == "reduce_scatter") {
      args.coll_type = UCC_COLL_TYPE_REDUCE_SCATTER;
      args.src.info.count = all;
    } else if (name == "all_gather") {
      args.coll_type = UCC_COLL_TYPE_ALLGATHER;
      args.dst.info.count = all;
    } else if (name == "alltoall") {
      args.coll_type = UCC_COLL_TYPE_ALLTOALL;
      args.src.info.count = args.dst.info.count = all;
    } else if (name == "broadcast") {
      args.coll_type = UCC_COLL_TYPE_BCAST;
    } else if (name == "barrier") {
      args.coll_type = UCC_COLL_TYPE_BARRIER;
    } else {
      throw std::invalid_argument("it has no " + name);
    }
    return args;
  }

  Exchange exchange_;
  int ranks_;
  ucc_lib_h library_;
  ucc_context_h context_;
  ucc_team_h team_;
};

}  // namespace
}  // namespace hccl_like::bench

int main(int argc, char** argv) {
  return hccl_like::bench::serve_rank<hccl_like::bench::Team>(argc, argv);
}
