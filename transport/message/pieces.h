#pragma once
// An ordered list of memory regions. The usual one or two regions need no allocation.
#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace hccl_like {

struct Piece {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

class Pieces {
 public:
  Pieces() = default;
  Pieces(std::byte* data, size_t bytes) { add(data, bytes); }

  void clear() {
    size_ = 0;
    more_.clear();
  }
  // Skips empty regions. Merges a region that continues the last one.
  void add(std::byte* data, size_t bytes) {
    if (bytes == 0) return;
    if (size_ > 0) {
      Piece& last = at(size_ - 1);
      if (last.data + last.bytes == data) {
        last.bytes += bytes;
        return;
      }
    }
    if (size_ < few_.size())
      few_[size_] = {data, bytes};
    else
      more_.push_back({data, bytes});
    ++size_;
  }
  size_t size() const { return size_; }
  const Piece& operator[](size_t i) const {
    return i < few_.size() ? few_[i] : more_[i - few_.size()];
  }
  size_t bytes() const {
    size_t sum = 0;
    for (size_t i = 0; i < size_; ++i) sum += (*this)[i].bytes;
    return sum;
  }
  // The contiguous region from byte `offset` on; empty at the end.
  Piece from(size_t offset) const {
    for (size_t i = 0; i < size_; ++i) {
      const Piece& piece = (*this)[i];
      if (offset < piece.bytes) return {piece.data + offset, piece.bytes - offset};
      offset -= piece.bytes;
    }
    return {};
  }

 private:
  Piece& at(size_t i) { return i < few_.size() ? few_[i] : more_[i - few_.size()]; }
  std::array<Piece, 2> few_{};
  std::vector<Piece> more_;
  size_t size_ = 0;
};

// A position in a list of pieces.
class PieceCursor {
 public:
  // The contiguous region from here on; empty at the end.
  Piece here(const Pieces& pieces) const {
    if (index_ == pieces.size()) return {};
    const Piece& piece = pieces[index_];
    return {piece.data + within_, piece.bytes - within_};
  }
  // Requires bytes <= here().bytes.
  void advance(const Pieces& pieces, size_t bytes) {
    within_ += bytes;
    if (bytes > 0 && within_ == pieces[index_].bytes) {
      ++index_;
      within_ = 0;
    }
  }
  // Like advance(), across pieces.
  void skip(const Pieces& pieces, size_t bytes) {
    while (bytes > 0) {
      const size_t part = std::min(bytes, here(pieces).bytes);
      advance(pieces, part);
      bytes -= part;
    }
  }

 private:
  size_t index_ = 0;
  size_t within_ = 0;
};

}  // namespace hccl_like
