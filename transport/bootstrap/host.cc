#include "transport/bootstrap/host.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace hccl_like {
namespace {

std::string name_space(const char* kind) {
  struct stat status {};
  if (::stat((std::string("/proc/self/ns/") + kind).c_str(), &status) != 0) return "0";
  return std::to_string(status.st_ino);
}

}  // namespace

std::string host_id() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  if (boot.empty()) boot = host_name();
  return boot + "/" + name_space("net") + "/" + name_space("user");
}

std::string_view machine_of(std::string_view host_id) {
  return host_id.substr(0, host_id.find('/'));
}

std::string host_name() {
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == 0) return "unknown";
  return name;
}

}  // namespace hccl_like
