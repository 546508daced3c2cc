#pragma once
// A short list of memory regions, in order, without allocation for the usual one or two.
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
  // Empty regions are left out; one that continues the last is merged with it.
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
  // The contiguous rest from byte `offset` on; empty at the end.
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

// A place in a list of pieces, for walking through it once.
class PieceCursor {
 public:
  // The contiguous rest from here; empty at the end.
  Piece here(const Pieces& pieces) const {
    if (index_ == pieces.size()) return {};
    const Piece& piece = pieces[index_];
    return {piece.data + within_, piece.bytes - within_};
  }
  // At most here().bytes.
  void advance(const Pieces& pieces, size_t bytes) {
    within_ += bytes;
    if (bytes > 0 && within_ == pieces[index_].bytes) {
      ++index_;
      within_ = 0;
    }
  }
  // The same over several pieces.
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
