// oneccl_serve FOLDER RANK RANKS: measures oneCCL on host memory (see serve.h).
#include <chrono>
#include <filesystem>
#include <fstream>
#include <oneapi/ccl.hpp>
#include <stdexcept>
#include <string>
#include <thread>

#include "bench/peers/serve.h"

namespace hccl_like::bench {
namespace {

// Rank 0 leaves the address of its key-value store in the folder; renaming makes it appear whole.
ccl::shared_ptr_class<ccl::kvs> key_value_store(const std::string& folder, int rank) {
  const std::string path = folder + "/kvs";
  if (rank == 0) {
    auto store = ccl::create_main_kvs();
    const auto address = store->get_address();
    std::ofstream(path + ".new", std::ios::binary)
        .write(address.data(), static_cast<std::streamsize>(address.size()));
    std::filesystem::rename(path + ".new", path);
    return store;
  }
  while (!std::filesystem::exists(path)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::ifstream file(path, std::ios::binary);
  ccl::kvs::address_type address;
  file.read(address.data(), static_cast<std::streamsize>(address.size()));
  return ccl::create_kvs(address);
}

class Operations {
 public:
  Operations(const std::string& folder, int rank, int ranks)
      : communicator_(ccl::create_communicator(ranks, rank, key_value_store(folder, rank))) {}

  std::function<void()> make(const Request& request, const PeerBuffers& buffers) {
    const auto type = request.type == "float" ? ccl::datatype::float32 : ccl::datatype::bfloat16;
    const auto sum = ccl::reduction::sum;
    void* const send = buffers.send();
    void* const receive = buffers.receive();
    const size_t count = buffers.count();
    const std::string& name = request.collective;
    if (name == "all_reduce")
      return
          [=, this] { ccl::allreduce(receive, receive, count, type, sum, communicator_).wait(); };
    if (name == "reduce_scatter")
      return
          [=, this] { ccl::reduce_scatter(send, receive, count, type, sum, communicator_).wait(); };
    if (name == "all_gather")
      return [=, this] { ccl::allgather(send, receive, count, type, communicator_).wait(); };
    if (name == "alltoall")
      return [=, this] { ccl::alltoall(send, receive, count, type, communicator_).wait(); };
    if (name == "broadcast")
      return [=, this] { ccl::broadcast(send, count, type, 0, communicator_).wait(); };
    if (name == "barrier") return [this] { ccl::barrier(communicator_).wait(); };
    if (name == "sendrecv")
      throw std::invalid_argument("its send and receive crash where there is no SYCL device");
    throw std::invalid_argument("no such collective in this program: " + name);
  }

 private:
  ccl::communicator communicator_;
};

}  // namespace
}  // namespace hccl_like::bench

int main(int argc, char** argv) {
  ccl::init();
  return hccl_like::bench::serve_rank<hccl_like::bench::Operations>(argc, argv);
}
