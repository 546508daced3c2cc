// Every target with inputs that are mutated from valid ones; the same each time.
// HCCL_LIKE_FUZZ_INPUTS=N: so many for each; HCCL_LIKE_FUZZ_FIRST=S: from the S-th on.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "core/base/error.h"
#include "core/base/log.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/targets.h"
#include "tests/number_setting.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace hccl_like::fuzz {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kInputs = 12'000;
#else
constexpr uint64_t kInputs = 40'000;
#endif

// For whoever finds that the program has ended.
const char* target_now = "";
uint64_t number_now = 0;

void say_where() {
  std::fprintf(stderr,
               "input %llu of %s; again: HCCL_LIKE_FUZZ_FIRST=%llu HCCL_LIKE_FUZZ_INPUTS=1 "
               "fuzz_test --gtest_filter=*%s\n",
               static_cast<unsigned long long>(number_now), target_now,
               static_cast<unsigned long long>(number_now), target_now);
}

std::vector<Bytes> corpus_of(const Target& target) {
  std::vector<Bytes> all = target.seeds();
  const std::filesystem::path folder = std::filesystem::path(HCCL_LIKE_FUZZ_CORPUS) / target.name;
  std::vector<std::filesystem::path> files;
  if (std::filesystem::exists(folder))
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    all.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return all;
}

class Fuzz : public ::testing::TestWithParam<size_t> {};

TEST_P(Fuzz, NothingButAnErrorComesOfIt) {
  const Target& target = targets()[GetParam()];
  target_now = target.name.data();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_set_death_callback(say_where);
#endif
  std::signal(SIGABRT, [](int) { say_where(); });
  const std::vector<Bytes> corpus = corpus_of(target);
  ASSERT_FALSE(corpus.empty());
  const uint64_t inputs = number_setting("HCCL_LIKE_FUZZ_INPUTS", kInputs),
                 first = number_setting("HCCL_LIKE_FUZZ_FIRST", 0);
  uint64_t taken = 0;
  for (number_now = first; number_now < first + inputs; ++number_now) {
    const Bytes input =
        number_now < corpus.size() ? corpus[number_now] : mutate(corpus, target.words, number_now);
    // In memory of exactly its size.
    const std::unique_ptr<uint8_t[]> exact(new uint8_t[input.size()]);
    std::copy(input.begin(), input.end(), exact.get());
    try {
      target.run({exact.get(), input.size()});
      ++taken;
    } catch (const Exception& exception) {
      require(exception.what()[0] != '\0', "an error without a word");
      require(number_now >= corpus.size() || target.name == "table", exception.what());
    }
  }
  std::printf("%s: %llu inputs, of which %llu were taken\n", target_now,
              static_cast<unsigned long long>(inputs), static_cast<unsigned long long>(taken));
}

INSTANTIATE_TEST_SUITE_P(Parsers, Fuzz, ::testing::Range(size_t{0}, targets().size()),
                         [](const auto& one) { return std::string(targets()[one.param].name); });

}  // namespace
}  // namespace hccl_like::fuzz
