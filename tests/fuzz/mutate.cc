#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <cstring>

namespace hccl_like::fuzz {
namespace {

constexpr size_t kLongest = 8192;

// splitmix64.
struct Random {
  uint64_t state;
  uint64_t next() {
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  size_t below(size_t bound) { return bound == 0 ? 0 : next() % bound; }
};

ptrdiff_t offset(size_t at) { return static_cast<ptrdiff_t>(at); }

void change(Bytes& bytes, std::span<const Bytes> corpus, std::span<const std::string_view> words,
            Random& random) {
  const size_t at = random.below(bytes.size() + 1);
  const size_t span = std::min(bytes.size() - at, 1 + random.below(size_t{1} << random.below(9)));
  switch (random.below(9)) {
    case 0:  // a bit
      if (at < bytes.size()) bytes[at] ^= static_cast<uint8_t>(1u << random.below(8));
      break;
    case 1:  // a byte
      if (at < bytes.size()) bytes[at] = static_cast<uint8_t>(random.next());
      break;
    case 2: {  // a number at the edge of what it can be
      static constexpr uint64_t kEdges[] = {
          0,           1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0xffffffff, uint64_t{1} << 63,
          ~uint64_t{0}};
      const uint64_t edge = kEdges[random.below(std::size(kEdges))];
      std::memcpy(bytes.data() + at, &edge,
                  std::min(bytes.size() - at, size_t{1} << random.below(4)));
      break;
    }
    case 3:  // less
      bytes.erase(bytes.begin() + offset(at), bytes.begin() + offset(at + span));
      break;
    case 4: {  // the same again
      const Bytes again(bytes.begin() + offset(at), bytes.begin() + offset(at + span));
      bytes.insert(bytes.begin() + offset(random.below(bytes.size() + 1)), again.begin(),
                   again.end());
      break;
    }
    case 5:  // cut short
      bytes.resize(at);
      break;
    case 6:
      if (!words.empty()) {
        const std::string_view word = words[random.below(words.size())];
        bytes.insert(bytes.begin() + offset(at), word.begin(), word.end());
      }
      break;
    case 7: {  // a part of another
      const Bytes& other = corpus[random.below(corpus.size())];
      const size_t begin = random.below(other.size() + 1),
                   end = begin + random.below(other.size() - begin + 1);
      bytes.insert(bytes.begin() + offset(at), other.begin() + offset(begin),
                   other.begin() + offset(end));
      break;
    }
    case 8:  // many alike
      bytes.insert(bytes.begin() + offset(at), random.below(100),
                   static_cast<uint8_t>(random.next()));
      break;
  }
  if (bytes.size() > kLongest) bytes.resize(kLongest);
}

}  // namespace

Bytes mutate(std::span<const Bytes> corpus, std::span<const std::string_view> words,
             uint64_t number) {
  Random random{number};
  Bytes bytes = corpus[random.below(corpus.size())];
  for (size_t changes = 1 + random.below(4); changes > 0; --changes)
    change(bytes, corpus, words, random);
  return bytes;
}

}  // namespace hccl_like::fuzz
