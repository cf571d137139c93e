# cmake --install: the program, and a package for find_package(grapevine): the libraries, their headers
# and the targets
#   grapevine::engine  for roles, compressors, topologies and runs of a program's own
#   grapevine::cli     the command line, its models and data sets as well (apps/program.hpp)
#   grapevine::sim     checked runs in virtual time, for tests of such parts (apps/simulate/checked_sim.hpp)
# Headers lie in include/grapevine, which is the root of includes: "algorithms/role.hpp".
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(GRAPEVINE_HEADERS ${CMAKE_INSTALL_INCLUDEDIR}/grapevine)
set(GRAPEVINE_PACKAGE ${CMAKE_INSTALL_LIBDIR}/cmake/grapevine)

install(TARGETS grapevine RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL)

set(libraries options messages algorithms gpu net actors apps sim event_proto perfetto_proto)
if(GRAPEVINE_HAVE_TORCH_CUDA)
  list(APPEND libraries cuda torch_cuda)
endif()
foreach(library IN LISTS libraries)
  set_target_properties(grapevine_${library} PROPERTIES EXPORT_NAME ${library})
endforeach()
set_target_properties(grapevine_actors PROPERTIES EXPORT_NAME engine)
set_target_properties(grapevine_apps PROPERTIES EXPORT_NAME cli)
list(TRANSFORM libraries PREPEND grapevine_)
install(TARGETS ${libraries} EXPORT grapevine ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${GRAPEVINE_HEADERS})
install(EXPORT grapevine NAMESPACE grapevine:: FILE grapevineTargets.cmake
        DESTINATION ${GRAPEVINE_PACKAGE})

set(without PATTERN examples EXCLUDE)
if(NOT GRAPEVINE_HAVE_TORCH_CUDA)
  list(APPEND without PATTERN gpu/cuda EXCLUDE PATTERN gpu/torch_cuda EXCLUDE)
endif()
install(DIRECTORY messages algorithms gpu net actors apps DESTINATION ${GRAPEVINE_HEADERS}
        FILES_MATCHING PATTERN "*.hpp" ${without})

configure_package_config_file(cmake/grapevineConfig.cmake.in ${CMAKE_BINARY_DIR}/grapevineConfig.cmake
                              INSTALL_DESTINATION ${GRAPEVINE_PACKAGE}
                              NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/grapevineConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/grapevineConfig.cmake
              ${CMAKE_BINARY_DIR}/grapevineConfigVersion.cmake
              cmake/FindAsio.cmake cmake/FindCAF.cmake cmake/FindISAL.cmake cmake/FindUCX.cmake cmake/GrapevineTorch.cmake
        DESTINATION ${GRAPEVINE_PACKAGE})
