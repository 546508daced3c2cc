# find_package(hccl_like_transport 1): what a transport module is built and tested with.
#   hccl_like::transport_module     the header, transport/module.h
#   hccl_like::transport_contract   the program that checks a module: add_test(... COMMAND hccl_like::transport_contract
#                                   NAME=$<TARGET_FILE:module>)
get_filename_component(_hccl_like_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET hccl_like::transport_module)
  add_library(hccl_like::transport_module INTERFACE IMPORTED)
  set_target_properties(hccl_like::transport_module PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_hccl_like_prefix}/include/hccl_like")
  add_executable(hccl_like::transport_contract IMPORTED)
  set_target_properties(hccl_like::transport_contract PROPERTIES
    IMPORTED_LOCATION "${_hccl_like_prefix}/bin/hccl_like_transport_contract")
endif()
unset(_hccl_like_prefix)
