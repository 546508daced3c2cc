# find_package(hccl_like): the headers for those who write plugins, as they are in the Python package.
#   hccl_like::plugin   device/plugin.h, for a device
#   hccl_like::module   transport/module.h, for a transport
get_filename_component(_hccl_like_sdk "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
foreach(_hccl_like_target plugin module)
  if(NOT TARGET hccl_like::${_hccl_like_target})
    add_library(hccl_like::${_hccl_like_target} INTERFACE IMPORTED)
    set_target_properties(hccl_like::${_hccl_like_target} PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES "${_hccl_like_sdk}/include/hccl_like")
  endif()
endforeach()
unset(_hccl_like_target)
unset(_hccl_like_sdk)
