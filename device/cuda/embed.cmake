# cmake -DPTX=... -DOUT=... -P embed.cmake: a source file with the text of the kernels.
file(READ ${PTX} text)
# A string literal may be some 64 KiB long; several beside each other are one.
string(LENGTH "${text}" length)
set(literals "")
set(at 0)
while(at LESS length)
  string(SUBSTRING "${text}" ${at} 16000 piece)
  string(APPEND literals "R\"ptx(${piece})ptx\"\n")
  math(EXPR at "${at} + 16000")
endwhile()
file(WRITE ${OUT} "#include \"device/cuda/entries.h\"\n\nnamespace hccl_like::cuda {\nconst char* const kKernels =\n${literals};\n}\n")
