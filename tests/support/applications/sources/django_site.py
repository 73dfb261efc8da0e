"""Django's admin in one file, with one model that has a date: `django_site.py FOLDER PORT`."""

# mypy: ignore-errors
# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false

import sys

import django
from django.conf import settings
from django.core.management import call_command
from django.urls import path

FOLDER, PORT = sys.argv[1:]
settings.configure(
    DEBUG=True, SECRET_KEY="for tests only", ROOT_URLCONF=__name__, STATIC_URL="static/",
    USE_TZ=True, DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{FOLDER}/db.sqlite3"}},
    INSTALLED_APPS=[
        "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes",
        "django.contrib.sessions", "django.contrib.messages", "django.contrib.staticfiles",
    ],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    TEMPLATES=[{
        "BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
        "OPTIONS": {"context_processors": [
            "django.template.context_processors.request",
            "django.contrib.auth.context_processors.auth",
            "django.contrib.messages.context_processors.messages",
        ]},
    }],
)  # fmt: skip
django.setup()

from django.contrib import admin  # noqa: E402  # after `setup`
from django.contrib.auth.models import User  # noqa: E402

urlpatterns = [path("admin/", admin.site.urls)]

if __name__ == "__main__":
    call_command("migrate", verbosity=0)
    if not User.objects.exists():
        User.objects.create_superuser("ada", "ada@example.com", "count-on-it")
    call_command("runserver", f"127.0.0.1:{PORT}", use_reloader=False)
