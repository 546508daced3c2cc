#pragma once
// The file by which torchrun learns why a rank failed (TORCHELASTIC_ERROR_FILE).
#include <string>

namespace hccl_like {

// Writes it, unless there is one: who wrote first saw the cause, and torch's @record replaces ours
// with the traceback of what ended the program. Does nothing without torchrun. Any thread.
void write_error_file(const std::string& message);

// Takes back what this process wrote, if it is still ours: the program goes on, and what may end it
// later is something else.
void withdraw_error_file();

}  // namespace hccl_like
