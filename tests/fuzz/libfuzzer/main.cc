// The targets for libFuzzer, of which HCCL_LIKE_FUZZ_TARGET names one. Its seeds that are in the
// code are written to HCCL_LIKE_FUZZ_SEEDS, a folder, so that it can be given to libFuzzer as a
// corpus.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "core/base/error.h"
#include "tests/fuzz/targets.h"

namespace {

const hccl_like::fuzz::Target& chosen() {
  const char* const name = std::getenv("HCCL_LIKE_FUZZ_TARGET");
  for (const auto& target : hccl_like::fuzz::targets())
    if (name != nullptr && target.name == name) return target;
  std::fprintf(stderr, "HCCL_LIKE_FUZZ_TARGET is one of:\n");
  for (const auto& target : hccl_like::fuzz::targets())
    std::fprintf(stderr, "  %s\n", target.name.data());
  std::exit(2);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const hccl_like::fuzz::Target& target = chosen();
  const char* const folder = std::getenv("HCCL_LIKE_FUZZ_SEEDS");
  int number = 0;
  if (folder != nullptr)
    for (const hccl_like::fuzz::Bytes& seed : target.seeds())
      std::ofstream(folder + ("/seed-" + std::to_string(number++)), std::ios::binary)
          .write(reinterpret_cast<const char*>(seed.data()),
                 static_cast<std::streamsize>(seed.size()));
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static const hccl_like::fuzz::Target& target = chosen();
  // In memory of exactly its size, and not null.
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[bytes]);
  if (bytes > 0) __builtin_memcpy(exact.get(), data, bytes);
  try {
    target.run({exact.get(), bytes});
  } catch (const hccl_like::Exception& exception) {
    hccl_like::fuzz::require(exception.what()[0] != '\0', "an error without a word");
  }
  return 0;
}
