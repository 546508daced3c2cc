#include "core/settings/config_values.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <limits>

#include "core/base/error.h"

namespace hccl_like {
namespace {

[[noreturn]] void reject(std::string_view text, std::string_view wanted) {
  throw_misuse("'" + std::string(text) + "' is not " + std::string(wanted));
}

bool parse_digits(std::string_view text, uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

int shift_of_suffix(char suffix) {
  switch (suffix) {
    case 'K':
    case 'k':
      return 10;
    case 'M':
    case 'm':
      return 20;
    case 'G':
    case 'g':
      return 30;
    default:
      return 0;
  }
}

bool consume(std::string_view& text, char prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

InterfaceFilter InterfaceFilter::parse(std::string_view text) {
  InterfaceFilter filter;
  filter.exclude = consume(text, '^');
  filter.exact = consume(text, '=');
  filter.names = parse_list(text);
  if (filter.names.empty() && (filter.exclude || filter.exact)) {
    reject(filter.to_string(), "a list of interfaces; write names after ^ or =, e.g. ^docker,lo");
  }
  return filter;
}

bool InterfaceFilter::matches(std::string_view interface_name) const {
  if (names.empty()) return true;
  const bool found = std::any_of(names.begin(), names.end(), [&](const std::string& wanted) {
    return exact ? interface_name == wanted : interface_name.starts_with(wanted);
  });
  return found != exclude;
}

std::string InterfaceFilter::to_string() const {
  return std::string(exclude ? "^" : "") + (exact ? "=" : "") + join(names);
}

PortRange PortRange::parse(std::string_view text) {
  constexpr std::string_view kWanted =
      "a range of ports; write the first and the last, e.g. 20000-20100";
  if (text.empty() || text == "0-0") return {};
  const size_t dash = text.find('-');
  uint64_t low = 0, high = 0;
  if (dash == std::string_view::npos || !parse_digits(text.substr(0, dash), low) ||
      !parse_digits(text.substr(dash + 1), high) || low == 0 || high > 65535 || low > high) {
    reject(text, kWanted);
  }
  return {static_cast<uint16_t>(low), static_cast<uint16_t>(high)};
}

std::string PortRange::to_string() const {
  return std::to_string(low) + "-" + std::to_string(high);
}

RailCount RailCount::parse(std::string_view text) {
  uint64_t count = 0;
  if (!parse_digits(text, count) || count == 0 || count > kMost)
    reject(text, "a number of connections; write one from 1 to 16");
  return {count};
}

CallShare CallShare::parse(std::string_view text) {
  uint64_t every = 0;
  const std::string_view digits = text.starts_with("1/") ? text.substr(2) : text;
  const bool number = parse_digits(digits, every) && every <= UINT32_MAX;
  if (!number || (digits.size() == text.size() ? every > 1 : every == 0))
    reject(text, "a share of the calls; write 1/1000 for every thousandth, 1 for all or 0");
  return {static_cast<uint32_t>(every)};
}

std::string CallShare::to_string() const {
  return every < 2 ? std::to_string(every) : "1/" + std::to_string(every);
}

namespace {
constexpr std::string_view kCompressions[] = {"none", "bf16", "mx8", "mx4"};  // by Compression
}

std::string_view name(Compression compression) noexcept {
  return kCompressions[static_cast<size_t>(compression)];
}

Compression parse_compression(std::string_view text) {
  const auto found = std::ranges::find(kCompressions, text);
  if (found == std::end(kCompressions)) reject(text, "a compression; write none, bf16, mx8 or mx4");
  return static_cast<Compression>(found - std::begin(kCompressions));
}

MetricsTarget MetricsTarget::parse(std::string_view text) {
  constexpr std::string_view kWanted =
      "a place for metrics; write a port (9400), an address and a port (10.0.0.5:9400, "
      "[fd00::5]:9400), or an absolute path that ends in .prom";
  if (text.empty()) return {};
  if (text.ends_with(kFileEnding)) {
    if (text.front() != '/' || text.size() == kFileEnding.size() + 1) reject(text, kWanted);
    return {.file = std::string(text)};
  }
  const size_t colon = text.rfind(':');
  std::string_view address = colon == std::string_view::npos ? "127.0.0.1" : text.substr(0, colon);
  const std::string_view digits = colon == std::string_view::npos ? text : text.substr(colon + 1);
  const bool bracketed = address.size() > 2 && address.front() == '[' && address.back() == ']';
  if (bracketed) address = address.substr(1, address.size() - 2);
  std::array<std::byte, sizeof(in6_addr)> parsed;
  const std::string whole(address);
  uint64_t port = 0;
  if (::inet_pton(bracketed ? AF_INET6 : AF_INET, whole.c_str(), parsed.data()) != 1 ||
      !parse_digits(digits, port) || port == 0 || port > 65535)
    reject(text, kWanted);
  return {.address = whole, .port = static_cast<uint16_t>(port)};
}

std::string MetricsTarget::to_string() const {
  if (port == 0) return file;
  const bool v6 = address.find(':') != std::string::npos;
  return (v6 ? "[" + address + "]" : address) + ":" + std::to_string(port);
}

ForcedAlgorithms ForcedAlgorithms::parse(std::string_view text) {
  ForcedAlgorithms forced;
  for (const std::string& part : parse_list(text, ';')) {
    const size_t colon = part.find(':');
    if (colon == 0 || colon == std::string::npos || colon + 1 == part.size()) {
      reject(part, "a choice of algorithm; write collective:algorithm, e.g. all_reduce:ring");
    }
    forced.choices.push_back({part.substr(0, colon), part.substr(colon + 1)});
  }
  return forced;
}

namespace {

// "allreduce" (MPI, NCCL) equals "all_reduce".
bool same_but_for_underscores(std::string_view a, std::string_view b) noexcept {
  size_t i = 0, j = 0;
  while (true) {
    while (i < a.size() && a[i] == '_') ++i;
    while (j < b.size() && b[j] == '_') ++j;
    if (i == a.size() || j == b.size()) return i == a.size() && j == b.size();
    if (a[i++] != b[j++]) return false;
  }
}

}  // namespace

std::string_view ForcedAlgorithms::find(std::string_view collective) const noexcept {
  const auto found = std::find_if(choices.begin(), choices.end(), [&](const Choice& c) {
    return same_but_for_underscores(c.collective, collective);
  });
  return found == choices.end() ? std::string_view() : std::string_view(found->algorithm);
}

std::string ForcedAlgorithms::to_string() const {
  std::vector<std::string> parts;
  for (const Choice& choice : choices) parts.push_back(choice.collective + ":" + choice.algorithm);
  return join(parts, ';');
}

NamedPaths NamedPaths::parse(std::string_view text) {
  NamedPaths named;
  for (const std::string& part : parse_list(text)) {
    const size_t equals = part.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == part.size())
      reject(part, "a named file; write name=/path/to/it");
    named.paths[part.substr(0, equals)] = part.substr(equals + 1);
  }
  return named;
}

std::string NamedPaths::to_string() const {
  std::vector<std::string> parts;
  for (const auto& [name, path] : paths) parts.push_back(name + "=" + path);
  return join(parts);
}

uint64_t parse_bytes(std::string_view text) {
  constexpr std::string_view kWanted = "a size; write bytes, or a number with K, M or G, e.g. 64K";
  const int shift = text.empty() ? 0 : shift_of_suffix(text.back());
  const std::string_view digits = shift == 0 ? text : text.substr(0, text.size() - 1);
  uint64_t number = 0;
  if (!parse_digits(digits, number) || number > std::numeric_limits<uint64_t>::max() >> shift) {
    reject(text, kWanted);
  }
  return number << shift;
}

uint64_t parse_number(std::string_view text, uint64_t max) {
  uint64_t number = 0;
  if (!parse_digits(text, number) || number > max) {
    reject(text, "a number from 0 to " + std::to_string(max));
  }
  return number;
}

std::vector<std::string> parse_list(std::string_view text, char separator) {
  std::vector<std::string> parts;
  if (text.empty()) return parts;
  for (size_t begin = 0;;) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (end == begin)
      reject(text, std::string("a list; an entry is empty, write names separated by ") + separator);
    parts.emplace_back(text.substr(begin, end - begin));
    if (end == text.size()) return parts;
    begin = end + 1;
  }
}

std::string join(const std::vector<std::string>& parts, char separator) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += separator;
    text += part;
  }
  return text;
}

}  // namespace hccl_like
