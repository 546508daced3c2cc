// Prints docs/settings.md from the table of settings, so that the page and the program cannot
// differ.
#include <iostream>
#include <string>
#include <string_view>

#include "core/settings/config.h"

namespace {

// A bar would end the table's cell.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

constexpr std::string_view kBegin =
    R"(# Settings

Every setting is an environment variable that begins with `HCCL_LIKE_`. They are read once in a process; give all ranks
the same. None is needed for a normal run. A value that cannot be understood is an error that names the variable; an
unknown `HCCL_LIKE_` name is warned about, with the nearest known one.

Sizes may be written as `4096`, `64K`, `1M` or `2G` (powers of 1024).

| setting | default | what it does |
| --- | --- | --- |
)";

constexpr std::string_view kEnd = R"(
This page is made from the table in [core/settings/config.cc](../core/settings/config.cc): after a change there, build the target
`update_settings_doc`.
)";

}  // namespace

int main() {
  std::cout << kBegin;
  for (const auto& setting : hccl_like::Config::settings()) {
    const std::string value =
        setting.default_value.empty() ? "" : "`" + std::string(setting.default_value) + "`";
    std::cout << "| `" << setting.name << "` | " << value << " | " << cell(setting.help) << " |\n";
  }
  std::cout << kEnd;
}
