#pragma once
// torchrun's error file (TORCHELASTIC_ERROR_FILE).
#include <string>

namespace hccl_like {

// Writes the file unless it exists: the first writer saw the cause. torch's @record later replaces
// it with a traceback. No-op without torchrun. Any thread.
void write_error_file(const std::string& message);

// Removes the file if this process wrote it and nobody changed it. Call if the program continues.
void withdraw_error_file();

}  // namespace hccl_like
