# find_package(hccl_like_plugin 1): what a device plugin is built and tested with.
#   hccl_like::plugin            the header, device/plugin.h
#   hccl_like::plugin_contract   the program that checks a plugin: add_test(... COMMAND hccl_like::plugin_contract
#                                   $<TARGET_FILE:plugin>)
get_filename_component(_hccl_like_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET hccl_like::plugin)
  add_library(hccl_like::plugin INTERFACE IMPORTED)
  set_target_properties(hccl_like::plugin PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_hccl_like_prefix}/include/hccl_like")
  add_executable(hccl_like::plugin_contract IMPORTED)
  set_target_properties(hccl_like::plugin_contract PROPERTIES
    IMPORTED_LOCATION "${_hccl_like_prefix}/bin/hccl_like_plugin_contract")
endif()
unset(_hccl_like_prefix)
