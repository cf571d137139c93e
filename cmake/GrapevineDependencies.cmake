# Every dependency is a distribution package (scripts/packages.txt); LibTorch may also come from
# CMAKE_PREFIX_PATH, e.g. $(python3 -c 'import torch; print(torch.utils.cmake_prefix_path)').
find_package(spdlog REQUIRED)
include(GrapevineTorch)  # after spdlog, which brings fmt
find_package(CAF REQUIRED)
find_package(Asio REQUIRED)
find_package(CLI11 REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(JPEG REQUIRED)
find_package(PNG REQUIRED)
find_package(ZLIB REQUIRED)
find_package(OpenSSL 3.0 REQUIRED)
find_package(prometheus-cpp REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(httplib REQUIRED IMPORTED_TARGET cpp-httplib)
pkg_check_modules(ncurses REQUIRED ncursesw)  # by name: its compiler flags disagree with the precompiled header
find_package(ISAL REQUIRED)
find_package(ChartJs 3 REQUIRED)
# Optional: without it the ucx transport says at run time that it is not built in.
find_package(UCX QUIET)
if(GRAPEVINE_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
endif()
