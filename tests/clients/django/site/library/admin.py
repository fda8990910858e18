from django.contrib import admin

from .models import Author, Book


class Books(admin.TabularInline):
    model = Book
    extra = 0


@admin.register(Author)
class AuthorAdmin(admin.ModelAdmin):
    inlines = [Books]
    search_fields = ["name"]


@admin.register(Book)
class BookAdmin(admin.ModelAdmin):
    list_display = ["title", "author", "price"]
    list_filter = ["state", "author"]
    search_fields = ["title", "author__name"]
    date_hierarchy = "printed"
