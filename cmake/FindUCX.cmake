# Finds UCX. Its own CMake package is not used: Debian 13's names a folder that does not exist, which
# CMake refuses.
# Defines the imported targets ucx::ucs, ucx::uct and ucx::ucp.
find_path(UCX_INCLUDE_DIR ucp/api/ucp.h)
set(_ucx_libraries)
foreach(part IN ITEMS ucs uct ucp)
  string(TOUPPER ${part} upper)
  find_library(UCX_${upper}_LIBRARY ${part})
  list(APPEND _ucx_libraries UCX_${upper}_LIBRARY)
endforeach()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(UCX REQUIRED_VARS ${_ucx_libraries} UCX_INCLUDE_DIR)
mark_as_advanced(${_ucx_libraries} UCX_INCLUDE_DIR)
if(UCX_FOUND AND NOT TARGET ucx::ucp)
  foreach(part IN ITEMS ucs uct ucp)
    string(TOUPPER ${part} upper)
    add_library(ucx::${part} UNKNOWN IMPORTED)
    set_target_properties(ucx::${part} PROPERTIES IMPORTED_LOCATION ${UCX_${upper}_LIBRARY}
                          INTERFACE_INCLUDE_DIRECTORIES ${UCX_INCLUDE_DIR})
  endforeach()
endif()
