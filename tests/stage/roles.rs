//! The least role on a real API server: the agents act as a user that `docs/reference/role-bindings.yaml` and
//! `docs/reference/role-bindings-apps.yaml` give the roles of `docs/reference/role.yaml`, and nothing else.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{Api, DeleteParams};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::real::create;

const FILES: [&str; 3] = [
    include_str!("../../docs/reference/role.yaml"),
    include_str!("../../docs/reference/role-bindings.yaml"),
    include_str!("../../docs/reference/role-bindings-apps.yaml"),
];

/// The agents' user in the scenario at `place`.
pub(crate) fn user(place: &str) -> String {
    format!("{place}-agents")
}

/// Makes the roles and binds them to the user of `place`, with names of its own. Those of a missing namespace
/// are skipped: no call goes there.
pub(crate) async fn grant(client: &Client, place: &str) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for object in objects(place) {
        if let Some(namespace) = object["metadata"]["namespace"].as_str()
            && namespaces.get_opt(namespace).await.unwrap().is_none()
        {
            continue;
        }
        match object["kind"].as_str().unwrap() {
            "ClusterRole" => create::<ClusterRole>(&Api::all(client.clone()), object).await,
            "ClusterRoleBinding" => create::<ClusterRoleBinding>(&Api::all(client.clone()), object).await,
            "Role" => create::<Role>(&in_its_namespace(client, &object), object).await,
            "RoleBinding" => create::<RoleBinding>(&in_its_namespace(client, &object), object).await,
            other => panic!("{other} among the roles"),
        }
    }
}

pub(crate) async fn take_back(client: &Client, place: &str) {
    for object in objects(place) {
        match object["kind"].as_str().unwrap() {
            "ClusterRole" => delete::<ClusterRole>(Api::all(client.clone()), &object).await,
            "ClusterRoleBinding" => delete::<ClusterRoleBinding>(Api::all(client.clone()), &object).await,
            "Role" => delete::<Role>(in_its_namespace(client, &object), &object).await,
            _ => delete::<RoleBinding>(in_its_namespace(client, &object), &object).await,
        }
    }
}

fn objects(place: &str) -> Vec<Value> {
    let texts = FILES.iter().flat_map(|file| file.split("\n---\n"));
    let named = |text| {
        let mut object: Value = serde_saphyr::from_str(text).unwrap();
        for at in ["/metadata/name", "/roleRef/name"] {
            if let Some(name) = object.pointer_mut(at) {
                *name = format!("{place}-{}", name.as_str().unwrap()).into();
            }
        }
        if let Some(subject) = object.pointer_mut("/subjects/0/name") {
            *subject = user(place).into();
        }
        object
    };
    texts.map(named).collect()
}

fn in_its_namespace<K>(client: &Client, object: &Value) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), object["metadata"]["namespace"].as_str().unwrap())
}

async fn delete<K>(api: Api<K>, object: &Value)
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned,
{
    drop(api.delete(object["metadata"]["name"].as_str().unwrap(), &DeleteParams::default()).await);
}
