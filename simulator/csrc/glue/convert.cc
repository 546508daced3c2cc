#include "glue/convert.h"

#include <c10/util/Exception.h>

namespace torch_sim {

Stream& from_c10(const c10::Stream& stream) {
  Stream* found = Runtime::get().device(index_of(stream.device())).stream(stream.id());
  TORCH_CHECK(found, "sim: there is no stream ", stream);
  return *found;
}

}  // namespace torch_sim
