#include "base/error.h"

#include <cerrno>
#include <system_error>

namespace torch_sim {

std::string system_error(const std::string& what) {
  return what + ": " + std::generic_category().message(errno);
}

}  // namespace torch_sim
