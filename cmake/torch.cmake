# Python and the versions of torch that adapters are built for: of process_group/ and of the simulator.
#
# find_package(Torch) is not used: it looks for every library torch could have been built with, and would replace the
# Python of this build. The headers of a wheel, and its libraries where it is installed, are all there is to know.
if(NOT Python3_EXECUTABLE)
  find_program(Python3_EXECUTABLE NAMES python3 REQUIRED)
endif()
find_package(Python3 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
if(CMAKE_CROSSCOMPILING)  # FindPython does not ask then, but this interpreter knows (scripts/wheels.sh --arch)
  execute_process(COMMAND ${Python3_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_config_var('SOABI'))"
                  OUTPUT_VARIABLE Python3_SOABI OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
endif()

set(HCCL_LIKE_TORCH "" CACHE STRING "Folders torch/ of the versions to build adapters for, installed or with headers alone; \
empty: that of Python3_EXECUTABLE; none: no adapter")

# hccl_like_torches(variable): the folders of HCCL_LIKE_TORCH.
function(hccl_like_torches variable)
  set(torches ${HCCL_LIKE_TORCH})
  if(torches STREQUAL "none")
    set(torches)
  elseif(NOT torches)
    # Without an import, which takes seconds and would load installed backends, ours among them. A build in isolation does not see
    # the environment that it is for, but knows where that is.
    execute_process(
      COMMAND ${Python3_EXECUTABLE} -c "
import importlib.util, os, sysconfig
found = importlib.util.find_spec('torch')
print(found.submodule_search_locations[0] if found else os.path.join(sysconfig.get_path('platlib'), 'torch'))"
      OUTPUT_VARIABLE torches OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    if(NOT IS_DIRECTORY ${torches}/include)
      message(FATAL_ERROR "${Python3_EXECUTABLE} has no torch: install one, or name folders with its headers with "
                          "-DHCCL_LIKE_TORCH=...")
    endif()
  endif()
  set(${variable} ${torches} PARENT_SCOPE)
endfunction()

# hccl_like_torch_name(variable dir): torch_2_13 for the torch in `dir`.
function(hccl_like_torch_name variable dir)
  file(STRINGS ${dir}/version.py version REGEX "^__version__ = ")
  if(NOT version MATCHES "'([0-9]+)\\.([0-9]+)\\.[^']*'")
    message(FATAL_ERROR "${dir}/version.py does not say which version of torch this is")
  endif()
  set(${variable} torch_${CMAKE_MATCH_1}_${CMAKE_MATCH_2} PARENT_SCOPE)
endfunction()

# hccl_like_torch(name dir): an interface library `name` of the headers and the libraries of torch in `dir`. A library that is not
# there is stood in for by one without a symbol: the loader finds torch's under that name when the program runs.
function(hccl_like_torch name dir)
  message(STATUS "An adapter to the torch in ${dir}")
  add_library(${name} INTERFACE)
  # torch's headers, bundled pybind11 included: classes that cross the border between two extensions need the same
  # pybind11 on both sides, so no other copy may come first.
  target_include_directories(${name} SYSTEM INTERFACE ${dir}/include ${dir}/include/torch/csrc/api/include
                                                      ${Python3_INCLUDE_DIRS})
  target_compile_definitions(${name} INTERFACE FMT_HEADER_ONLY=1 TORCH_API_INCLUDE_EXTENSION_H)
  target_link_options(${name} INTERFACE -Wl,--no-as-needed)
  foreach(library torch torch_cpu c10 torch_python)
    set(target ${name}_${library})
    if(EXISTS ${dir}/lib/lib${library}.so)
      add_library(${target} SHARED IMPORTED)
      set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${dir}/lib/lib${library}.so)
    else()
      file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/nothing.cc CONTENT "")
      add_library(${target} SHARED ${CMAKE_CURRENT_BINARY_DIR}/nothing.cc)
      set_target_properties(${target} PROPERTIES OUTPUT_NAME ${library}
                            LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/${name})
    endif()
    target_link_libraries(${name} INTERFACE ${target})
  endforeach()
endfunction()
