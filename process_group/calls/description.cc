#include "process_group/calls/description.h"

namespace hccl_like {

std::string place_of(const char* title) {
  std::string text = title;
  text[text.find(':')] = ' ';
  return text;
}

}  // namespace hccl_like
