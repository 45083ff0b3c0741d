//! kubeops
