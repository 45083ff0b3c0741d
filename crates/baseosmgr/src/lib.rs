//! baseosmgr
