#include "process_group/symmetric/process_identity.h"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace hccl_like {
namespace {

struct Status {
  char state = 'X';  // state letter of ps; X: no such process
  uint64_t start = 0;
};

// Fields 3 and 22 of /proc/N/stat (proc(5)). Field 2, in parentheses, may contain any character.
Status status_of(int64_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  Status status;
  fields >> status.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> status.start;
  return status;
}

}  // namespace

ProcessIdentity ProcessIdentity::own() {
  return {.number = ::getpid(), .start = status_of(::getpid()).start};
}

bool ProcessIdentity::lives() const {
  const Status status = status_of(number);
  return status.state != 'X' && status.state != 'Z' && status.start == start;
}

}  // namespace hccl_like
