#pragma once
// Calls of the system that fail when they are told to. The program's own definitions come before
// those of the C library.
#include <span>
#include <string_view>

namespace hccl_like::calls {

// Names of the system calls that can fail.
std::span<const std::string_view> names();
// Instead of an error: the call moves some of the bytes that it was asked for.
inline constexpr int kShort = -1;
// And this: the call fails with EAGAIN and so do all later ones, as at a limit.
inline constexpr int kNoMore = -2;
// How it can fail.
std::span<const int> errors(std::string_view name);
// From now on calls are counted, and the `index`-th of `name` in this process fails with `error`.
// Index -1: none.
void arm(std::string_view name, int index, int error);
void disarm();
// Since arm().
int count(std::string_view name);

}  // namespace hccl_like::calls
