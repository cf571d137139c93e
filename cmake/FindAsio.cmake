# Finds Asio without Boost, headers alone, which distributions package without a CMake file.
# Defines the imported target asio::asio.
find_path(ASIO_INCLUDE_DIR asio.hpp)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Asio REQUIRED_VARS ASIO_INCLUDE_DIR
    REASON_FAILURE_MESSAGE "install libasio-dev (scripts/setup does)")
mark_as_advanced(ASIO_INCLUDE_DIR)
if(Asio_FOUND AND NOT TARGET asio::asio)
  find_package(Threads REQUIRED)
  add_library(asio::asio INTERFACE IMPORTED)
  set_target_properties(asio::asio PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${ASIO_INCLUDE_DIR}
      INTERFACE_COMPILE_DEFINITIONS "ASIO_STANDALONE;ASIO_NO_DEPRECATED"
      INTERFACE_LINK_LIBRARIES Threads::Threads)
endif()
