# Helpers that give every layer the same shape.

# -Wrestrict is off because g++ 12 reports it inside std::string (GCC bug 105651).
set(HCCL_LIKE_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast
                       -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND HCCL_LIKE_WARNINGS -Wno-restrict)
endif()

# A macro, because find_package sets variables for its caller.
macro(hccl_like_find_packages)
  # Only its headers: device/reduce/targets.cc says why.
  find_path(HWY_INCLUDE_DIR hwy/highway.h)
  if(NOT HWY_INCLUDE_DIR)
    message(FATAL_ERROR "Highway >= 1.0 is needed for the reductions: install libhwy-dev")
  endif()
  # Only its header: the library is loaded at run time where it is there.
  find_path(HWLOC_INCLUDE_DIR hwloc.h)
  if(NOT HWLOC_INCLUDE_DIR)
    message(FATAL_ERROR "hwloc >= 2.0 is needed to build: install libhwloc-dev")
  endif()
  find_package(OpenSSL 3.0 QUIET COMPONENTS Crypto)
  if(NOT OpenSSL_FOUND)
    message(FATAL_ERROR "OpenSSL's libcrypto >= 3.0 is needed for the proofs that ranks give each other: install libssl-dev")
  endif()
  foreach(wanted spdlog:libspdlog-dev nlohmann_json:nlohmann-json3-dev)
    string(REPLACE ":" ";" wanted ${wanted})
    list(GET wanted 0 package)
    list(GET wanted 1 debian)
    find_package(${package} QUIET)
    if(NOT ${package}_FOUND)
      message(FATAL_ERROR "${package} is needed: install ${debian}")
    endif()
  endforeach()
endmacro()

# libfabric is loaded at run time; only its headers are needed here, and without them the transport is left out.
macro(hccl_like_find_fabric)
  find_path(HCCL_LIKE_FABRIC_INCLUDE rdma/fi_tagged.h)
  if(NOT HCCL_LIKE_FABRIC_INCLUDE)
    message(STATUS "No headers of libfabric: the transport fabric is left out; libfabric-dev has them")
  endif()
endmacro()

macro(hccl_like_use_ccache)
  find_program(HCCL_LIKE_CCACHE_PROGRAM ccache)
  if(HCCL_LIKE_CCACHE AND HCCL_LIKE_CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_C_COMPILER_LAUNCHER ${HCCL_LIKE_CCACHE_PROGRAM})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${HCCL_LIKE_CCACHE_PROGRAM})
  endif()
endmacro()

function(hccl_like_target_options target)
  target_compile_options(${target} PRIVATE ${HCCL_LIKE_WARNINGS})
  # Without fused multiply-add a product of complex numbers has the same bits in either order, hence on every rank.
  target_compile_options(${target} PRIVATE -ffp-contract=off)
  if(HCCL_LIKE_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(HCCL_LIKE_SANITIZE)
    target_compile_options(${target} PUBLIC -fsanitize=${HCCL_LIKE_SANITIZE} -fno-omit-frame-pointer
                                            -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=${HCCL_LIKE_SANITIZE})
    # One instruction set instead of six: a sanitized build of all the kernels takes longer than the rest together, and
    # the ordinary build tests every one of them against the reference.
    # For fuzzers, that reduce nothing, lane by lane: clang 14 takes a quarter of an hour for vectors made of arrays.
    if(HCCL_LIKE_SANITIZE MATCHES "fuzzer")
      target_compile_definitions(${target} PRIVATE HWY_COMPILE_ONLY_SCALAR)
    else()
      target_compile_definitions(${target} PRIVATE HWY_COMPILE_ONLY_STATIC)
    endif()
  endif()
endfunction()

# hccl_like_precompile(target headers...): compiles these once for all targets that share them, which must have the same flags:
# reading them would else be a third of the work. Preset dev does so for tests alone, so that a file of a layer that forgets an
# include is found.
set(HCCL_LIKE_STD <algorithm> <array> <atomic> <chrono> <cstring> <functional> <map> <memory> <mutex> <optional> <span>
                  <string> <string_view> <thread> <vector>)
function(hccl_like_precompile target)
  get_target_property(type ${target} TYPE)
  string(TOLOWER precompiled_${type} shared)
  if(NOT TARGET ${shared})
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${shared}.cc CONTENT "")
    add_library(${shared} OBJECT ${CMAKE_BINARY_DIR}/${shared}.cc)
    if(type STREQUAL "EXECUTABLE")
      target_link_libraries(${shared} PRIVATE GTest::gtest)
      set_target_properties(${shared} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${shared} PRIVATE ${CMAKE_CXX_COMPILE_OPTIONS_PIE})
      hccl_like_test_options(${shared})
    else()
      hccl_like_target_options(${shared})
    endif()
    target_precompile_headers(${shared} PRIVATE ${ARGN})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${shared})
endfunction()

# hccl_like_unity(target files): compiles so many files of a target as one, which reads headers and instantiates templates once.
# The names in their anonymous namespaces must differ: a clash is an error of the compiler. Two warnings take the files for one.
# Files with a UNITY_GROUP are compiled together, without others.
function(hccl_like_unity target files)
  if(HCCL_LIKE_UNITY)
    get_target_property(sources ${target} SOURCES)
    set(count 0)
    foreach(source ${sources})
      get_source_file_property(group ${source} UNITY_GROUP)
      if(NOT group)
        math(EXPR group "${count} / ${files}")
        math(EXPR count "${count} + 1")
        set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${target}_${group})
      endif()
    endforeach()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    target_compile_options(${target} PRIVATE -Wno-shadow -Wno-subobject-linkage)
  endif()
endfunction()

# Without optimisation a sanitized test is compiled in half the time, and with less an ordinary one in four fifths; what it
# tests is optimised.
function(hccl_like_test_options target)
  hccl_like_target_options(${target})
  if(HCCL_LIKE_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
  elseif(HCCL_LIKE_QUICK_TESTS)
    target_compile_options(${target} PRIVATE -O1)
  endif()
endfunction()

# hccl_like_layer(name, links...): a static library from every .cc below name/ that is not a test.
function(hccl_like_layer layer)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${layer}/*.cc)
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "/device/cuda/")  # a plugin, and no part of the layer
  if(NOT HCCL_LIKE_FABRIC_INCLUDE)
    list(FILTER sources EXCLUDE REGEX "/transport/fabric/")
  endif()
  if(sources)
    add_library(hccl_like_${layer} STATIC ${sources})
    target_link_libraries(hccl_like_${layer} PUBLIC ${ARGN})
    target_include_directories(hccl_like_${layer} PUBLIC ${CMAKE_SOURCE_DIR})
    hccl_like_target_options(hccl_like_${layer})
    if(HCCL_LIKE_PYTHON)  # libhccl_like exports them to adapters; nobody replaces them
      set_target_properties(hccl_like_${layer} PROPERTIES CXX_VISIBILITY_PRESET default)
      target_compile_options(hccl_like_${layer} PRIVATE -fno-semantic-interposition)
    endif()
    if(HCCL_LIKE_UNITY)
      hccl_like_unity(hccl_like_${layer} 20)
    elseif(HCCL_LIKE_PRECOMPILE)
      hccl_like_precompile(hccl_like_${layer} ${HCCL_LIKE_STD})
    endif()
  else()
    add_library(hccl_like_${layer} INTERFACE)
    target_link_libraries(hccl_like_${layer} INTERFACE ${ARGN})
    target_include_directories(hccl_like_${layer} INTERFACE ${CMAKE_SOURCE_DIR})
  endif()
endfunction()

# hccl_like_shared_library(): the torch-free layers as libhccl_like, for adapters to torch. Its name and its symbols have the version, so
# that two copies in one process keep to themselves.
function(hccl_like_shared_library)
  set(objects)
  foreach(layer core device transport collectives)
    list(APPEND objects $<TARGET_OBJECTS:hccl_like_${layer}>)
  endforeach()
  add_library(hccl_like SHARED ${objects})
  target_include_directories(hccl_like INTERFACE ${CMAKE_SOURCE_DIR})
  target_link_libraries(hccl_like PRIVATE Threads::Threads OpenSSL::Crypto ${CMAKE_DL_LIBS})
  hccl_like_target_options(hccl_like)
  set(exports ${CMAKE_SOURCE_DIR}/cmake/exports.map)
  target_link_options(hccl_like PRIVATE -Wl,--version-script=${exports} -Wl,-Bsymbolic-functions -Wl,--gc-sections
                                        -Wl,--exclude-libs,ALL -Wl,-z,defs -Wl,-soname,libhccl_like-${HCCL_LIKE_VERSION}.so)
  set_target_properties(hccl_like PROPERTIES
    OUTPUT_NAME hccl_like-${HCCL_LIKE_VERSION} NO_SONAME ON LINK_DEPENDS ${exports}
    LIBRARY_OUTPUT_DIRECTORY ${HCCL_LIKE_EXTENSION_DIR}/lib)
endfunction()

# hccl_like_loaded_gtest(): GoogleTest for libraries that Python loads, as target hccl_like_gtest, where its sources are; what Debian
# compiled of them cannot become part of a library.
function(hccl_like_loaded_gtest)
  find_path(HCCL_LIKE_GTEST_SOURCE src/gtest-all.cc PATHS /usr/src/googletest/googletest NO_DEFAULT_PATH)
  if(NOT HCCL_LIKE_GTEST_SOURCE)
    message(STATUS "No sources of GoogleTest: `hccl-like contract` is left out; libgtest-dev has them")
    return()
  endif()
  add_library(hccl_like_gtest OBJECT ${HCCL_LIKE_GTEST_SOURCE}/src/gtest-all.cc)
  target_include_directories(hccl_like_gtest PRIVATE ${HCCL_LIKE_GTEST_SOURCE})
  target_include_directories(hccl_like_gtest SYSTEM PUBLIC ${HCCL_LIKE_GTEST_SOURCE}/include)
  target_compile_options(hccl_like_gtest PRIVATE -O1 -g0)
endfunction()

# hccl_like_contract_library(): the contract of device plugins for `hccl-like contract`. Of the Python package's wheels, and of
# installations for tests.
function(hccl_like_contract_library)
  if(NOT TARGET hccl_like_gtest)
    return()
  endif()
  add_library(hccl_like_contract MODULE ${CMAKE_SOURCE_DIR}/tests/contract/plugin_contract.cc)
  target_link_libraries(hccl_like_contract PRIVATE hccl_like hccl_like_gtest Threads::Threads ${CMAKE_DL_LIBS})
  target_compile_options(hccl_like_contract PRIVATE -O1 -g0)
  set_target_properties(hccl_like_contract PROPERTIES
    PREFIX "" BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/../lib" LIBRARY_OUTPUT_DIRECTORY ${HCCL_LIKE_EXTENSION_DIR}/sdk)
  add_dependencies(hccl_like_python hccl_like_contract)
endfunction()

# hccl_like_layer_tests(name): one GoogleTest executable from every *_test.cc below name/.
function(hccl_like_layer_tests layer)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${layer}/*_test.cc)
  list(FILTER sources EXCLUDE REGEX "/device/cuda/")
  if(NOT HCCL_LIKE_FABRIC_INCLUDE)
    list(FILTER sources EXCLUDE REGEX "/transport/fabric/")
  endif()
  if(HCCL_LIKE_FILES_LEFT_OUT)
    list(FILTER sources EXCLUDE REGEX "${HCCL_LIKE_FILES_LEFT_OUT}")
  endif()
  if(NOT sources)
    return()
  endif()
  find_package(GTest REQUIRED)
  include(GoogleTest)
  add_executable(${layer}_test ${sources})
  target_link_libraries(${layer}_test PRIVATE hccl_like_${layer} GTest::gtest GTest::gtest_main)
  hccl_like_test_options(${layer}_test)
  hccl_like_unity(${layer}_test 10)
  if(HCCL_LIKE_PRECOMPILE)
    hccl_like_precompile(${layer}_test ${HCCL_LIKE_STD} <gtest/gtest.h>)
  elseif(HCCL_LIKE_QUICK_TESTS)
    hccl_like_precompile(${layer}_test <gtest/gtest.h>)
  endif()
  # The limits are far above what a test takes: they only end a hang, also on a busy machine.
  set(limit_s 300)
  if(HCCL_LIKE_SANITIZE OR CMAKE_CROSSCOMPILING)
    set(limit_s 900)
  endif()
  # Tests of transport are ranks: processes forked off, which ThreadSanitizer allows no threads if an earlier test has left one.
  if(CMAKE_CROSSCOMPILING OR (HCCL_LIKE_SANITIZE AND NOT (HCCL_LIKE_SANITIZE STREQUAL "thread" AND layer STREQUAL "transport")))
    hccl_like_shards(${layer}_test ${limit_s} ${layer})
  else()
    hccl_like_left_out(left_out)
    gtest_discover_tests(${layer}_test TEST_FILTER "-${left_out}" DISCOVERY_TIMEOUT 120 NO_PRETTY_VALUES
                         PROPERTIES TIMEOUT ${limit_s} LABELS ${layer})
  endif()
endfunction()

# hccl_like_shards(target seconds label): many tests of a program in one process. With a sanitizer or an emulator a process takes a
# fifth of a second to start, which is longer than most tests. HCCL_LIKE_TESTS_LEFT_OUT has patterns of GoogleTest, separated by colons;
# HCCL_LIKE_TESTS_OF_THE_NIGHT those of tests that run with HCCL_LIKE_NIGHTLY only: more ranks, another wire, or another mix of who
# maps whose memory, through the code that other tests run.
set(HCCL_LIKE_SHARDS 16)
function(hccl_like_left_out result)
  set(left_out ${HCCL_LIKE_TESTS_LEFT_OUT})
  if(NOT HCCL_LIKE_NIGHTLY AND HCCL_LIKE_TESTS_OF_THE_NIGHT)
    string(APPEND left_out ":${HCCL_LIKE_TESTS_OF_THE_NIGHT}")
  endif()
  set(${result} "${left_out}" PARENT_SCOPE)
endfunction()
function(hccl_like_shards target limit_s label)
  math(EXPR last "${HCCL_LIKE_SHARDS} - 1")
  hccl_like_left_out(left_out)
  foreach(shard RANGE ${last})
    add_test(NAME ${label}.${shard} COMMAND ${target} --gtest_filter=-${left_out})
    set_tests_properties(${label}.${shard} PROPERTIES TIMEOUT ${limit_s} LABELS ${label}
                         ENVIRONMENT "GTEST_TOTAL_SHARDS=${HCCL_LIKE_SHARDS};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()

# hccl_like_test_program(name properties...): a GoogleTest executable of its own, name_test, from every .cc of the folder, over all
# layers. The properties are those of its tests.
function(hccl_like_test_program name)
  find_package(GTest REQUIRED)
  include(GoogleTest)
  file(GLOB sources CONFIGURE_DEPENDS *.cc)
  add_executable(${name}_test ${sources})
  target_link_libraries(${name}_test PRIVATE hccl_like_collectives GTest::gtest GTest::gtest_main)
  hccl_like_target_options(${name}_test)
  if(HCCL_LIKE_QUICK_TESTS)
    target_compile_options(${name}_test PRIVATE -O1)
  endif()
  gtest_discover_tests(${name}_test DISCOVERY_TIMEOUT 120 NO_PRETTY_VALUES PROPERTIES TIMEOUT 900 LABELS ${name} ${ARGN})
endfunction()

# The rules about the tree itself, as plain Python scripts; sanitizers have nothing to add to them.
function(hccl_like_structure_tests)
  if(HCCL_LIKE_SANITIZE)
    return()
  endif()
  find_package(Python3 3.10 QUIET COMPONENTS Interpreter)
  if(Python3_FOUND)
    add_test(NAME Structure COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/structure/check.py)
    set_tests_properties(Structure PROPERTIES LABELS structure)
  endif()
endfunction()

# Whether a header is the first include of the .cc or the test beside it, which then compiles it alone.
function(hccl_like_comes_first result header)
  set(${result} OFF PARENT_SCOPE)
  if(HCCL_LIKE_PRECOMPILE OR NOT HCCL_LIKE_TESTS)
    return()
  endif()
  set(suffixes .cc)
  if(NOT HCCL_LIKE_QUICK_TESTS)  # with which a test has read GoogleTest's header before
    list(APPEND suffixes _test.cc)
  endif()
  foreach(suffix ${suffixes})
    string(REGEX REPLACE "\\.h$" "${suffix}" source ${CMAKE_SOURCE_DIR}/${header})
    if(EXISTS ${source})
      file(STRINGS ${source} lines REGEX "^ *# *(include|define)")
      string(FIND "${lines}" "#include \"${header}\"" at)
      if(at EQUAL 0)
        set(${result} ON PARENT_SCOPE)
      endif()
    endif()
  endforeach()
endfunction()

# hccl_like_check_headers(layers...): a translation unit, for each header that no other compiles alone, that includes it twice
# and nothing before it.
function(hccl_like_check_headers)
  set(units)
  foreach(layer ${ARGN})
    file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/${layer}/*.h)
    list(FILTER headers EXCLUDE REGEX "^device/cuda/")
    if(NOT HCCL_LIKE_FABRIC_INCLUDE)
      list(FILTER headers EXCLUDE REGEX "^transport/fabric/fabric_(end|library|memory|port)\\.h$")
    endif()
    foreach(header ${headers})
      hccl_like_comes_first(alone ${header})
      if(NOT alone AND NOT header MATCHES "-inl\\.h$")  # included several times on purpose, by its one .cc
        set(unit ${CMAKE_BINARY_DIR}/headers/${header}.cc)
        file(CONFIGURE OUTPUT ${unit} CONTENT "#include \"@header@\"\n#include \"@header@\"\n" @ONLY)
        list(APPEND units ${unit})
      endif()
    endforeach()
  endforeach()
  if(units)
    add_library(check_headers OBJECT ${units})
    target_link_libraries(check_headers PRIVATE hccl_like_collectives)
    find_package(GTest REQUIRED)  # for the helpers that tests share
    target_link_libraries(check_headers PRIVATE GTest::gtest)
    hccl_like_target_options(check_headers)
    target_compile_options(check_headers PRIVATE -O0 -g0)
  endif()
endfunction()
