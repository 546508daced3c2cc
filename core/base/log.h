#pragma once
// Log lines for people: choices and failures, once, where they are made. Never on the data path.
//
// A line is "host:pid [rank] LEVEL message", as NCCL's, on standard error or in the configured
// file. A call below the active level costs one relaxed load; pass a function where building the
// message costs something:
//
//   log_info([&] { return "rank " + std::to_string(peer) + ": " + transport; });
#include <atomic>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace hccl_like {

// Each level includes those before it.
enum class LogLevel : uint8_t { kWarn, kInfo, kTrace };

// "WARN", "INFO", "TRACE".
std::string_view name(LogLevel level) noexcept;

// Sets the level and where lines go: standard error if `file` is empty, else that file (created or
// appended to; %h stands for the host's name, %p for the process id). Throws kSystem if the file
// cannot be opened. Until it is called: kWarn to standard error. May be called again, from one
// thread at a time, while others log.
void configure_log(LogLevel level, std::string_view file = {});

// From now on lines carry this rank. Negative: no rank.
void set_log_rank(int rank) noexcept;

namespace detail {
extern std::atomic<LogLevel> active_log_level;
}  // namespace detail

inline bool log_enabled(LogLevel level) noexcept {
  return level <= detail::active_log_level.load(std::memory_order_relaxed);
}

// Writes one line if the level is active. Thread-safe. Never throws: a log that cannot be written
// is lost.
void log(LogLevel level, std::string_view message) noexcept;

template <typename Make>
concept MessageMaker = requires(Make make) {
  { make() } -> std::convertible_to<std::string>;
};

template <MessageMaker Make>
void log(LogLevel level, Make&& make) {
  if (log_enabled(level)) log(level, std::string_view(std::string(make())));
}

inline void log_warn(std::string_view message) noexcept { log(LogLevel::kWarn, message); }
inline void log_info(std::string_view message) noexcept {
  if (log_enabled(LogLevel::kInfo)) log(LogLevel::kInfo, message);
}
inline void log_trace(std::string_view message) noexcept {
  if (log_enabled(LogLevel::kTrace)) log(LogLevel::kTrace, message);
}
template <MessageMaker Make>
void log_info(Make&& make) {
  log(LogLevel::kInfo, make);
}
template <MessageMaker Make>
void log_trace(Make&& make) {
  log(LogLevel::kTrace, make);
}

}  // namespace hccl_like
