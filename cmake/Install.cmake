# `cmake --install build/release --prefix DIR`: the program, and the rooms that other C++ projects build on, for
#   find_package(muoncore)  ->  muoncore::optim (Muon, AdamW, ...), muoncore::muon, muoncore::core
# LibTorch is not installed with them: the package asks the consumer's MUONCORE_PYTHON or MUONCORE_TORCH for it, which must
# be the version that this was built with.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/muoncore)
set(installed_rooms core muon optim)

list(TRANSFORM installed_rooms PREPEND muoncore_ OUTPUT_VARIABLE installed_targets)
install(TARGETS ${installed_targets} EXPORT muoncore ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT muoncore NAMESPACE muoncore:: FILE muoncore-targets.cmake DESTINATION ${package_dir})
install(TARGETS muoncore RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
foreach(room IN LISTS installed_rooms)
  install(DIRECTORY muoncore/${room} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/muoncore FILES_MATCHING PATTERN "*.h")
endforeach()
file(READ "${MUONCORE_TORCH}/version.py" torch_version)
string(REGEX MATCH "__version__ = '([0-9]+\\.[0-9]+\\.[0-9]+)" torch_version "${torch_version}")
set(MUONCORE_TORCH_VERSION "${CMAKE_MATCH_1}")
configure_package_config_file(cmake/muoncore-config.cmake.in "${PROJECT_BINARY_DIR}/muoncore-config.cmake"
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/muoncore-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/muoncore-config.cmake" "${PROJECT_BINARY_DIR}/muoncore-config-version.cmake"
              cmake/LibTorch.cmake DESTINATION ${package_dir})
